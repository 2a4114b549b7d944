#include "scenarios/reader/hugging_face.hpp"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "scenarios/reader/checks.hpp"
#include "scenarios/reader/hugging_face_families.hpp"
#include "scenarios/reader/nearest.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::reader {
namespace {

/// Python writes NaN and Infinity into JSON; as many digits stand for them where only the syntax counts.
std::string strict_json(const std::string& text) {
    std::string strict = text;
    bool in_text = false;
    for (std::size_t at = 0; at < strict.size(); ++at) {
        if (strict[at] == '\\' && in_text) {
            ++at;
        } else if (strict[at] == '"') {
            in_text = !in_text;
        } else if (!in_text) {
            for (const std::string_view word : {"Infinity", "NaN"})
                if (std::string_view(strict).substr(at, word.size()) == word)
                    strict.replace(at, word.size(), word.size(), '1');
        }
    }
    return strict;
}

Mark mark_of(const std::string& text, std::size_t byte) {
    const std::size_t at = std::min(byte, text.size());
    const std::size_t line_start = text.rfind('\n', at == 0 ? 0 : at - 1);
    const auto lines = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const std::size_t start = at == 0 || line_start == std::string::npos ? 0 : line_start + 1;
    return Mark{static_cast<int>(lines) + 1, static_cast<int>(at - start) + 1};
}

void check_syntax(const SourcePointer& source, Gathered& gathered) {
    try {
        const auto document = nlohmann::json::parse(strict_json(source->text()));
        if (!document.is_object())
            gathered.diagnostics.add(Location{source, Mark{1, 1}, {}},
                                     "found no object, expected a Hugging Face config.json");
    } catch (const nlohmann::json::parse_error& error) {
        const std::size_t byte = error.byte == 0 ? 0 : error.byte - 1;
        gathered.diagnostics.add(Location{source, mark_of(source->text(), byte), {}},
                                 "syntax: this is not JSON, expected a Hugging Face config.json");
    } catch (const nlohmann::json::out_of_range&) {
        return;  // a number beyond every double, such as 1e400, is JSON: whoever reads the key judges it
    }
}

/// JSON is a part of YAML but for tabs, which YAML's reader does not take; outside texts they are only space.
SourcePointer load_json(const std::filesystem::path& path, Gathered& gathered) {
    gathered.diagnostics.open(path.string());
    LoadedSource loaded = load_source(path);
    const bool only_tabs = loaded.source && loaded.problem.starts_with("found a tab");
    const SourcePointer source = loaded.source ? loaded.source : std::make_shared<const SourceFile>(path.string(), "");
    if (!loaded.problem.empty() && !only_tabs)
        gathered.diagnostics.add(Location{source, loaded.at, {}}, loaded.problem, loaded.hint);
    gathered.diagnostics.throw_if_any();
    check_syntax(source, gathered);
    gathered.diagnostics.throw_if_any();
    std::string text = source->text();
    std::replace(text.begin(), text.end(), '\t', ' ');
    return std::make_shared<const SourceFile>(source->name(), std::move(text));
}

/// The family that model_type names; an error if there is none.
const HuggingFaceFamily* family_of(Arguments& config) {
    const auto type = config.text("model_type", {});
    if (!type) {
        if (!config.given("model_type")) config.file_error("key model_type is required");
        return nullptr;
    }
    std::vector<std::string_view> known;
    std::string names;
    for (const HuggingFaceFamily& family : hugging_face_families()) {
        if (family.model_type == *type) return &family;
        known.push_back(family.model_type);
        names += (names.empty() ? "" : ", ") + std::string(family.model_type);
    }
    config.error("model_type", "models of type " + in_quotes(*type) + " cannot be imported", "known are " + names);
    return nullptr;
}

/// One replica a GPU, so that whoever edits it starts from what every model can say.
void lay_out(ScenarioDraft& draft, const ImportedHardware& given, std::int64_t longest, ImportedScenario& imported) {
    constexpr std::int64_t kUsualLength = 4096;
    types::Scenario& scenario = draft.scenario;
    types::Hardware& hardware = scenario.hardware;
    hardware.node = read_hardware(given.node);
    const std::int64_t each = hardware.node.gpus_per_node;
    const std::int64_t world = given.world_size.value_or(given.nodes.value_or(1) * each);
    if (world < each) {
        hardware.node.gpus_per_node = static_cast<int>(world);
        imported.part_of_a_node = true;
    }
    hardware.nodes = static_cast<int>(std::max<std::int64_t>(1, world / each));
    scenario.batch.seq_length = longest > 0 ? std::min(kUsualLength, longest) : kUsualLength;
    scenario.batch.global_batch_size = hardware.gpus();
    scenario.optimizer.use_distributed_optimizer = true;
    scenario.offload.offload_modules.reset();
    scenario.offload.activation_offload_fraction.reset();
}

}  // namespace

ImportedScenario import_hugging_face(const std::filesystem::path& path, const ImportedHardware& hardware) {
    Gathered gathered;
    ScenarioDraft draft;
    ImportedScenario imported;
    Arguments config(load_json(path, gathered), gathered, imported);
    draft.scenario.name = path.stem().string();
    const HuggingFaceFamily* const family = family_of(config);
    gathered.diagnostics.throw_if_any();
    draft.model.model.name = family->model_type;
    family->import(config, draft.model);
    std::int64_t longest = 0;
    config.count("max_position_embeddings", "batch.seq_length", longest, IntegerRange{1, 1'000'000'000});
    settle_other_keys(config);
    lay_out(draft, hardware, longest, imported);
    gathered.diagnostics.throw_if_any();
    draft.scenario.model = complete(draft.model);
    complete_layout(draft);
    check_model(gathered, draft.model, draft.scenario.model, "model");
    check_scenario(gathered, draft);
    gathered.diagnostics.throw_if_any();
    config.note("layout, batch, optimizer and hardware are not in this file; edit them in the scenario");
    imported.scenario = std::move(draft.scenario);
    imported.where = std::move(gathered.where);
    return imported;
}

}  // namespace stowage::reader
