#include "scenarios/reader/megatron_arguments.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "scenarios/reader/checks.hpp"
#include "scenarios/reader/megatron_arguments_parts.hpp"
#include "scenarios/reader/recorded_memory.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::reader {
namespace {

void import_batch(Arguments& arguments, types::Batch& batch) {
    constexpr IntegerRange kTokens{1, 1'000'000'000};
    constexpr std::string_view kSequence = "batch.seq_length";
    if (!arguments.count("seq_length", kSequence, batch.seq_length, kTokens) &&
        !arguments.count("encoder_seq_length", kSequence, batch.seq_length, kTokens) &&
        !arguments.given("seq_length") && !arguments.given("encoder_seq_length"))
        arguments.file_error("argument seq_length is required");
    arguments.count("micro_batch_size", "batch.micro_batch_size", batch.micro_batch_size, IntegerRange{1, 1'000'000});
    batch.global_batch_size = 0;
    arguments.count("global_batch_size", "batch.global_batch_size", batch.global_batch_size,
                    IntegerRange{1, 10'000'000});
}

/// Megatron tells Transformer Engine which attention to take by environment variables.
void import_attention_backend(Arguments& arguments, types::Scenario& scenario) {
    std::string backend = arguments.text("attention_backend", "env.NVTE_FUSED_ATTN").value_or("auto");
    if (const std::size_t dot = backend.rfind('.'); dot != std::string::npos) backend = backend.substr(dot + 1);
    if (backend == "auto") return;
    if (backend != "flash" && backend != "fused" && backend != "unfused")
        return arguments.cannot_say("attention_backend", "the attention backend " + backend, "auto and fused can");
    // No rule asks for it, and an environment that holds nothing else would seem to lack what others ask for.
    if (arguments.judging() && arguments.environment().empty()) return;
    for (const auto& [variable, name] : {std::pair{"NVTE_FLASH_ATTN", "flash"}, std::pair{"NVTE_FUSED_ATTN", "fused"},
                                         std::pair{"NVTE_UNFUSED_ATTN", "unfused"}})
        scenario.env.emplace(variable, backend == name ? "1" : "0");
}

/// GPUs of the job, if anybody says so; 0 otherwise.
std::int64_t stated_world(Arguments& arguments, const ImportedHardware& hardware, std::int64_t gpus_per_node) {
    constexpr IntegerRange kRanks{1, 1'000'000};
    std::int64_t world = 0;
    std::int64_t machines = 1;
    std::int64_t each = gpus_per_node;
    const bool by_machines = arguments.count("nnodes", "hardware.nodes", machines, kRanks);
    const bool by_each = arguments.count("nproc_per_node", "hardware.node.gpus_per_node", each, kRanks);
    if (by_machines || by_each) world = machines * each;
    arguments.count("world_size", "hardware.nodes", world, kRanks);
    if (hardware.nodes) world = *hardware.nodes * gpus_per_node;
    return hardware.world_size.value_or(world);
}

/// The smallest number of whole machines that the layout fills.
std::int64_t smallest_world(const ScenarioDraft& draft, std::int64_t gpus_per_node) {
    const types::ParallelLayout& parallel = draft.scenario.parallel;
    const std::int64_t dense = parallel.tensor_model_parallel_size * parallel.context_parallel_size;
    const std::int64_t experts = draft.expert_tensor_parallel_size.value_or(parallel.tensor_model_parallel_size) *
                                 parallel.expert_model_parallel_size;
    const std::int64_t ranks = std::lcm(dense, experts) * parallel.pipeline_model_parallel_size;
    return std::lcm(ranks, gpus_per_node);
}

void import_hardware(Arguments& arguments, ScenarioDraft& draft, const ImportedHardware& given,
                     ImportedScenario& imported) {
    types::Hardware& hardware = draft.scenario.hardware;
    hardware.node = read_hardware(given.node);
    const std::int64_t each = hardware.node.gpus_per_node;
    std::int64_t world = stated_world(arguments, given, each);
    if (world == 0) {
        world = smallest_world(draft, each);
        arguments.note("the number of GPUs is not among the arguments: " + std::to_string(world / each) +
                       " machines of " + std::to_string(each) +
                       " are the fewest that the layout fills; --nodes or --world-size says otherwise");
    }
    if (world < each) {
        hardware.node.gpus_per_node = static_cast<int>(world);
        imported.part_of_a_node = true;
        world = each;
    }
    if (world % each != 0 || world / each > 1'000'000)
        arguments.file_error(std::to_string(world) + " GPUs are not whole machines of " + std::to_string(each));
    hardware.nodes = static_cast<int>(std::min<std::int64_t>(world / each, 1'000'000));
}

void import_all(Arguments& arguments, ScenarioDraft& draft, const ImportedHardware& hardware,
                ImportedScenario& imported) {
    types::Scenario& scenario = draft.scenario;
    scenario.env = arguments.environment();
    import_model(arguments, draft);
    import_layout(arguments, draft);
    if (!draft.model.model.has_experts()) arguments.pass_over("moe_", "no effect without num-experts");
    import_batch(arguments, scenario.batch);
    import_precision(arguments, scenario);
    import_optimizer(arguments, scenario.optimizer);
    import_recompute(arguments, scenario.recompute);
    import_cuda_graph(arguments, scenario.cuda_graph);
    import_offload(arguments, scenario.offload);
    import_attention_backend(arguments, scenario);
    import_hardware(arguments, draft, hardware, imported);
    judge_other_arguments(arguments, scenario, draft.model.model);
    settle_other_arguments(arguments);
}

/// What depends on several arguments, and the checks that every scenario goes through.
void complete_all(Gathered& gathered, ScenarioDraft& draft) {
    types::Scenario& scenario = draft.scenario;
    scenario.model = complete(draft.model);
    complete_layout(draft);
    if (scenario.batch.global_batch_size == 0)
        scenario.batch.global_batch_size =
            scenario.batch.micro_batch_size * std::max<std::int64_t>(scenario.parallel.data_parallel_size, 1);
    check_model(gathered, draft.model, scenario.model, "model");
    check_scenario(gathered, draft);
    gathered.diagnostics.throw_if_any();
}

void import_and_check(Arguments& arguments, ScenarioDraft& draft, const ImportedHardware& hardware, Gathered& gathered,
                      ImportedScenario& imported) {
    draft.model.model.name = draft.scenario.name;
    import_all(arguments, draft, hardware, imported);
    gathered.diagnostics.throw_if_any();
    complete_all(gathered, draft);
    imported.scenario = std::move(draft.scenario);
    imported.where = std::move(gathered.where);
}

}  // namespace

ImportedScenario import_megatron(const std::filesystem::path& path, const ImportedHardware& hardware,
                                 ImportFor purpose) {
    Gathered gathered;
    ScenarioDraft draft;
    ImportedScenario imported;
    Arguments arguments(path, gathered, imported);
    arguments.serve(purpose);
    draft.scenario.name = path.stem().string();
    import_and_check(arguments, draft, hardware, gathered, imported);
    return imported;
}

ImportedScenario import_recorded(const RecordedRun& run, const std::filesystem::path& hardware) {
    Gathered gathered;
    ScenarioDraft draft;
    ImportedScenario imported;
    gathered.diagnostics.open(run.source->name());
    Arguments arguments(run.source, *run.arguments, gathered, imported);
    arguments.serve(ImportFor::comparing);
    draft.scenario.name = run.name;
    import_and_check(arguments, draft, ImportedHardware{hardware, std::nullopt, run.gpus}, gathered, imported);
    return imported;
}

}  // namespace stowage::reader
