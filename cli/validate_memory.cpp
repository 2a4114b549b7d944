#include "cli/validate_memory.hpp"

#include <algorithm>
#include <filesystem>

#include "cli/hardware_choice.hpp"
#include "planner/layers/inventory.hpp"
#include "planner/layers/support.hpp"
#include "planner/rules/legality.hpp"
#include "planner/search/allocator_environment.hpp"
#include "planner/search/job.hpp"
#include "reports/validation.hpp"
#include "scenarios/reader/recorded_memory.hpp"

namespace stowage::cli {
namespace {

bool asks_for(const MemoryTableOptions& options, const reader::RecordedRun& run) {
    return run.name.find(options.job) != std::string::npos && (options.gpu.empty() || run.gpu == options.gpu);
}

/// States that differ in a layer, a parameter or a number are one part.
std::string part_of(const layers::StateBuffer& state) {
    using What = layers::StateBuffer::What;
    switch (state.what) {
        case What::weights: return "weights";
        case What::gradients: return "gradients";
        case What::optimizer: return state.name.starts_with("main ") ? "main parameters" : "moments";
        default: break;
    }
    for (const char* family :
         {"dummy gradient", "scalar", "last received input", "its gradient", "rotary angles", "rotary frequencies",
          "YaRN cosine", "YaRN sine", "Transformer Engine grouped GEMM workspace", "cuBLAS workspace", "dispatcher's"})
        if (state.name.starts_with(family)) return family;
    return state.name;
}

/// Where graphs are captured before the first iteration no eager one comes before them, and no moments are there yet.
types::Bytes peak_of(const layers::StageLayers& stage, const search::RankOutcome& rank) {
    if (rank.graphs == 0 || stage.graphs.warmup_steps > 0) return rank.peak_allocated();
    types::Bytes moments;
    for (const layers::StateBuffer& state : stage.states)
        if (state.when == layers::StateBuffer::When::first_optimizer_step && !state.on_host()) moments += state.bytes;
    return std::max(rank.capture_peak_allocated - moments, rank.steady_peak_allocated);
}

reports::MemoryParts parts_of(const reader::RecordedRun& run, const layers::StageLayers& stage,
                              const search::RankOutcome& rank) {
    using When = layers::StateBuffer::When;
    reports::MemoryParts parts{run.name, run.gpu, run.gpus, {}, rank.allocated_between_steps.count, {}, 0};
    for (const layers::StateBuffer& state : stage.states) {
        if (state.on_host() || state.when == When::construction || state.when == When::within_steps) continue;
        const std::string what = part_of(state);
        auto part = std::find_if(parts.between_steps.begin(), parts.between_steps.end(),
                                 [&](const auto& one) { return one.what == what; });
        if (part == parts.between_steps.end()) part = parts.between_steps.insert(part, {what, 0});
        part->bytes += state.bytes.count;
        parts.rounding -= state.bytes.count;
    }
    for (std::size_t script = 0; script < stage.scripts.size(); ++script) {
        std::int64_t frames = 0;
        for (const layers::ChunkLayers& chunk : stage.chunks)
            frames += std::count(chunk.order.begin(), chunk.order.end(), script);
        parts.layers.push_back({stage.scripts[script].name, frames, layers::saved_bytes(stage.scripts[script]).count});
    }
    parts.within_step = (peak_of(stage, rank) - rank.allocated_between_steps).count;
    return parts;
}

/// A message of the reader without its place, line, caret and hint.
std::string first_line(const std::string& message) {
    const std::string line = message.substr(0, message.find('\n'));
    constexpr std::string_view kMark = "error: ";
    const std::size_t mark = line.find(kMark);
    return mark == std::string::npos ? line : line.substr(mark + kMark.size());
}

/// What the job asks for and the model lacks.
std::vector<std::string> missing_features(const reader::ImportedScenario& imported) {
    std::vector<std::string> missing = imported.missing;
    if (!missing.empty()) return missing;
    for (const layers::Unsupported& one : layers::unsupported_features(imported.scenario))
        missing.push_back(one.feature);
    const auto allocator = search::allocator_environment(imported.scenario);
    if (const auto* wrong = std::get_if<layers::Unsupported>(&allocator)) missing.push_back(wrong->feature);
    return missing;
}

class MemoryValidation {
public:
    explicit MemoryValidation(const MemoryTableOptions& options) : shows_parts_(!options.job.empty()) {
        validation_.table = options.table;
    }

    void add(const reader::RecordedRun& run) {
        const auto machine = shipped_machine(run.gpu);
        if (!machine) return refuse(run, {"GPUs of type " + run.gpu});
        try {
            reader::ImportedScenario imported = reader::import_recorded(run, *machine);
            std::vector<std::string> missing = missing_features(imported);
            if (!missing.empty()) return refuse(run, std::move(missing));
            predict(run, std::move(imported.scenario));
        } catch (const types::Error& error) {
            refuse(run, {first_line(error.what())});
        }
    }

    [[nodiscard]] const reports::Validation& result() const { return validation_; }

private:
    void refuse(const reader::RecordedRun& run, std::vector<std::string> missing) {
        validation_.refused.push_back({run.name, run.gpu, run.gpus, std::move(missing)});
    }

    /// The logging rank is the last of the job, on the last pipeline rank.
    void predict(const reader::RecordedRun& run, types::Scenario scenario) {
        const types::OffloadChoice choice = rules::own_choice(scenario);
        search::Job job = search::prepare(std::move(scenario));
        search::Outcome outcome = search::evaluate(job, choice);
        if (outcome.chunk_mismatch) {
            // What was recorded did not stop: it ran before the change that made Megatron lose count of its chunks.
            job.scenario.rules = types::RuleSet::core_0_18;
            outcome = search::evaluate(job, choice);
        }
        if (outcome.ranks.empty()) return refuse(run, {"an offload policy that stops in the second iteration"});
        const search::RankOutcome& rank = outcome.ranks.back();
        row(run, "allocated_bytes", rank.allocated_between_steps, run.allocated);
        row(run, "peak_allocated_bytes", peak_of(job.stages.back(), rank), run.peak_allocated);
        if (shows_parts_) validation_.parts.push_back(parts_of(run, job.stages.back(), rank));
    }

    void row(const reader::RecordedRun& run, const std::string& quantity, types::Bytes predicted,
             std::optional<std::int64_t> measured) {
        if (measured) validation_.rows.push_back({run.name, run.gpu, run.gpus, quantity, predicted.count, *measured});
    }

    bool shows_parts_ = false;
    reports::Validation validation_;
};

}  // namespace

types::ExitCode validate_memory_table(const CommonOptions& common, const MemoryTableOptions& options) {
    MemoryValidation validation(options);
    for (const reader::RecordedRun& run : reader::read_recorded_memory(options.table))
        if (asks_for(options, run)) validation.add(run);
    if (common.json)
        print(reports::to_text(reports::validation_json(validation.result())));
    else if (!common.quiet)
        print(reports::validation_text(validation.result()));
    return types::ExitCode::yes;
}

}  // namespace stowage::cli
