#include "cli/validation_inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "reports/document.hpp"
#include "reports/measurement_json.hpp"
#include "reports/outcome_json.hpp"
#include "reports/plan_json.hpp"
#include "reports/scenario_json.hpp"
#include "reports/version.hpp"
#include "scenarios/recording/recording_file.hpp"

namespace stowage::cli {
namespace {

namespace fs = std::filesystem;
using reports::Json;

/// FNV-1a of 64 bits. Source: Fowler, Noll, Vo, "The FNV Non-Cryptographic Hash Algorithm" (RFC 9923), section 2.
std::string digits_of(const std::string& text) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char letter : text) {
        hash ^= static_cast<unsigned char>(letter);
        hash *= 0x100000001b3;
    }
    return fmt::format("{:016x}", hash);
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
    return value ? Json(*value) : Json(nullptr);
}

Json settings_json(const reader::RunSettings& settings) {
    return {{"policy", or_null(settings.policy)},
            {"allocator", or_null(settings.allocator)},
            {"rank", or_null(settings.rank)},
            {"offload_bytes", settings.offload_bytes ? Json(settings.offload_bytes->count) : Json(nullptr)},
            {"reload_ahead", or_null(settings.reload_ahead)},
            {"join_after", or_null(settings.join_after)},
            {"steps", or_null(settings.steps)},
            {"warmup_seconds", or_null(settings.warmup_seconds)},
            {"seed", or_null(settings.seed)},
            {"routing_skew", or_null(settings.routing_skew)}};
}

/// A scenario says so in its first key; model and hardware files lie beside scenarios.
bool is_scenario_file(const fs::path& path) {
    const reader::LoadedSource loaded = reader::load_source(path);
    return loaded.source && loaded.problem.empty() &&
           loaded.source->text().find("stowage/scenario/1") != std::string::npos;
}

class InputReader {
public:
    explicit InputReader(const reader::RunSettings& settings) : settings_(settings) {}

    void read(const fs::path& input) {
        std::error_code ignored;
        if (fs::is_directory(input, ignored)) return read_folder(input);
        if (reports::looks_like_json(input)) return read_json(input);
        if (reader::is_validation_file(input)) return read_list(input);
        read_scenario(input);
    }

    ValidationInputs take() { return std::move(inputs_); }
    [[nodiscard]] bool used_settings() const { return used_settings_; }

private:
    /// What is JSON of another kind is passed over; what is none is a damaged file, and nothing is compared without it.
    void read_folder(const fs::path& folder) {
        std::vector<fs::path> files;
        for (const fs::directory_entry& entry : fs::directory_iterator(folder))
            if (entry.is_regular_file()) files.push_back(entry.path());
        std::sort(files.begin(), files.end());
        for (const fs::path& file : files) {
            const std::string ending = file.extension().string();
            if (ending == ".json") read_if_known(file);
            if ((ending == ".yaml" || ending == ".yml") && (reader::is_validation_file(file) || is_scenario_file(file)))
                read(file);
        }
    }

    void read_if_known(const fs::path& file) {
        const std::string schema = reports::schema_of(file);
        for (const char* known : {reports::kMeasurementSchema, reports::kPlanSchema, recording::kRecordingSchema})
            if (schema == known) return read_json(file);
    }

    void read_json(const fs::path& file) {
        const std::string schema = reports::schema_of(file);
        if (schema == recording::kRecordingSchema) {
            inputs_.recordings.push_back(file.string());
            return;
        }
        if (schema == reports::kPlanSchema) {
            used_settings_ = true;
            inputs_.items.push_back({file.stem().string(), planned_policy(file.string(), "validate"), settings_});
            return;
        }
        Json document = reports::read_document(file, reports::kMeasurementSchema);
        inputs_.measurements.push_back({file.stem().string(), file.string(), std::move(document)});
    }

    void read_list(const fs::path& file) {
        reader::ValidationFile list = reader::read_validation_file(file);
        for (reader::ValidationCase& one : list.cases) {
            one.loaded.scenario.name = file.stem().string() + "/" + one.name;
            inputs_.items.push_back({one.loaded.scenario.name, std::move(one.loaded), one.run});
        }
        inputs_.bars.insert(inputs_.bars.end(), list.bars.begin(), list.bars.end());
    }

    void read_scenario(const fs::path& file) {
        used_settings_ = true;
        reader::LoadedScenario loaded = reader::load_scenario(file);
        const std::string name = loaded.scenario.name;
        inputs_.items.push_back({name, std::move(loaded), settings_});
    }

    reader::RunSettings settings_;
    ValidationInputs inputs_;
    bool used_settings_ = false;
};

}  // namespace

const types::Scenario& ValidationItem::scenario() const {
    if (const auto* const loaded = std::get_if<reader::LoadedScenario>(&source)) return loaded->scenario;
    return std::get<PolicyInput>(source).scenario;
}

std::string ValidationItem::request() const {
    Json all{{"scenario", reports::scenario_json(scenario())},
             {"settings", settings_json(settings)},
             {"version", reports::kVersion}};
    if (const auto* const planned = std::get_if<PolicyInput>(&source))
        all["choice"] = reports::choice_json(planned->choice);
    return digits_of(all.dump());
}

std::string slice_of(const types::Scenario& scenario) {
    Json slice = reports::scenario_json(scenario);
    for (const char* free : {"offload", "cuda_graph", "limits", "objective"}) slice.erase(free);
    return digits_of(slice.dump());
}

ValidationInputs read_validation_inputs(const std::vector<std::string>& inputs, const reader::RunSettings& settings) {
    InputReader reader(settings);
    for (const std::string& input : inputs) reader.read(input);
    const bool given = settings_json(settings) != settings_json({});
    if (given && !reader.used_settings())
        throw CommandLineError(
            "validate: options of a run are for scenarios and plans, and there is none; a validation file says for "
            "itself how it is run");
    return reader.take();
}

}  // namespace stowage::cli
