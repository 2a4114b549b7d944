#include "scenarios/reader/megatron_arguments_parts.hpp"

namespace stowage::reader {
namespace {

constexpr IntegerRange kRanks{1, 1'000'000};
constexpr IntegerRange kStageLayers{0, 100'000};

void import_sizes(Arguments& arguments, ScenarioDraft& draft) {
    types::ParallelLayout& parallel = draft.scenario.parallel;
    arguments.count("tensor_model_parallel_size", "parallel.tensor_model_parallel_size",
                    parallel.tensor_model_parallel_size, kRanks);
    arguments.count("pipeline_model_parallel_size", "parallel.pipeline_model_parallel_size",
                    parallel.pipeline_model_parallel_size, kRanks);
    arguments.count("context_parallel_size", "parallel.context_parallel_size", parallel.context_parallel_size, kRanks);
    arguments.count("expert_model_parallel_size", "parallel.expert_model_parallel_size",
                    parallel.expert_model_parallel_size, kRanks);
    arguments.count("expert_tensor_parallel_size", "parallel.expert_tensor_parallel_size",
                    draft.expert_tensor_parallel_size, kRanks);
}

/// With one tensor-parallel rank Megatron switches sequence parallelism off.
void import_sequence_parallel(Arguments& arguments, types::ParallelLayout& parallel) {
    const bool asked = arguments.flag("sequence_parallel", "parallel.sequence_parallel");
    parallel.sequence_parallel = asked && parallel.tensor_model_parallel_size > 1;
    if (asked && !parallel.sequence_parallel)
        arguments.finding("sequence_parallel", "sequence_parallel", false,
                          "sequence-parallel is switched off: there is one tensor-parallel rank",
                          "Leave it out, or use tensor parallelism.");
}

void import_uneven_stages(Arguments& arguments, types::ParallelLayout& parallel) {
    arguments.count("decoder_first_pipeline_num_layers", "parallel.decoder_first_pipeline_num_layers",
                    parallel.decoder_first_pipeline_num_layers, kStageLayers);
    arguments.count("decoder_last_pipeline_num_layers", "parallel.decoder_last_pipeline_num_layers",
                    parallel.decoder_last_pipeline_num_layers, kStageLayers);
    parallel.account_for_embedding_in_pipeline_split =
        arguments.flag("account_for_embedding_in_pipeline_split", "parallel.account_for_embedding_in_pipeline_split");
    parallel.account_for_loss_in_pipeline_split =
        arguments.flag("account_for_loss_in_pipeline_split", "parallel.account_for_loss_in_pipeline_split");
}

/// At most one of the three may be given.
void import_virtual_stages(Arguments& arguments, ScenarioDraft& draft) {
    types::ParallelLayout& parallel = draft.scenario.parallel;
    constexpr std::string_view kByLayers = "num_layers_per_virtual_pipeline_stage";
    int given = 0;
    std::string_view last;
    for (std::string_view name : {kByLayers, std::string_view("num_virtual_stages_per_pipeline_rank"),
                                  std::string_view("pipeline_model_parallel_layout")})
        if (arguments.given(name)) {
            ++given;
            last = name;
        }
    arguments.count(kByLayers, "parallel.num_layers_per_virtual_pipeline_stage", draft.layers_per_virtual_stage,
                    IntegerRange{1, 100'000});
    arguments.count("num_virtual_stages_per_pipeline_rank", "parallel.num_virtual_stages_per_pipeline_rank",
                    draft.virtual_stages, kRanks);
    if (const auto layout = arguments.text("pipeline_model_parallel_layout", "parallel.pipeline_model_parallel_layout"))
        parallel.pipeline_model_parallel_layout = *layout;
    if (given > 1)
        return arguments.error(last,
                               "found more than one description of virtual stages, expected one of "
                               "num-layers-per-virtual-pipeline-stage, num-virtual-stages-per-pipeline-rank "
                               "and pipeline-model-parallel-layout");
    if (draft.layers_per_virtual_stage &&
        (parallel.decoder_first_pipeline_num_layers || parallel.decoder_last_pipeline_num_layers))
        arguments.error(kByLayers, "beside an uneven first or last stage", "give num-virtual-stages-per-pipeline-rank");
}

/// One way for all layers; Megatron also takes one for each.
void import_context_communication(Arguments& arguments, types::ParallelLayout& parallel) {
    constexpr std::string_view kName = "cp_comm_type";
    std::vector<types::ContextCommunication> ways;
    if (!arguments.choices(kName, "parallel.cp_comm_type", ways) || ways.empty()) return;
    parallel.cp_comm_type = ways.front();
    for (const auto way : ways)
        if (way != ways.front())
            return arguments.error(kName, "found different ways of communication for different layers",
                                   "one way for all layers can be planned");
}

void import_context_levels(Arguments& arguments, types::ParallelLayout& parallel) {
    constexpr std::string_view kName = "hierarchical_context_parallel_sizes";
    const auto words = arguments.words(kName, "parallel.hierarchical_context_parallel_sizes");
    for (const std::string& word : words.value_or(std::vector<std::string>{})) {
        const auto size =
            word.find_first_not_of("0123456789") == std::string::npos && word.size() < 7 ? std::stoll(word) : 0;
        if (size < 1) return arguments.error(kName, "found " + in_quotes(word) + ", expected whole numbers");
        parallel.hierarchical_context_parallel_sizes.push_back(size);
    }
}

/// moe_enable_deepep is the older name of one backend.
void import_flex_backend(Arguments& arguments, types::ParallelLayout& parallel) {
    if (arguments.judging() && arguments.plain("moe_flex_dispatcher_backend") == "ncclep") {
        arguments.text("moe_flex_dispatcher_backend", {});
        return arguments.note("moe_flex_dispatcher_backend", "ncclep: judged as another backend");
    }
    arguments.choice("moe_flex_dispatcher_backend", "parallel.moe_flex_dispatcher_backend",
                     parallel.moe_flex_dispatcher_backend);
    arguments.flag("moe_enable_deepep", "parallel.moe_flex_dispatcher_backend");
}

void import_expert_dispatch(Arguments& arguments, types::ParallelLayout& parallel, bool has_experts) {
    constexpr std::string_view kName = "moe_token_dispatcher_type";
    if (has_experts) parallel.moe_token_dispatcher_type = types::TokenDispatcher::allgather;  // Megatron's default
    const std::string word = arguments.text(kName, "parallel.moe_token_dispatcher_type").value_or("");
    if (word == "alltoall_seq") {
        parallel.moe_token_dispatcher_type = types::TokenDispatcher::alltoall;
        arguments.note(kName, "alltoall_seq is gone from Megatron; taken as alltoall");
    } else if (!word.empty()) {
        arguments.choice(kName, "parallel.moe_token_dispatcher_type", parallel.moe_token_dispatcher_type);
    }
    import_flex_backend(arguments, parallel);
    parallel.moe_shared_expert_overlap =
        arguments.flag("moe_shared_expert_overlap", "parallel.moe_shared_expert_overlap");
    parallel.overlap_moe_expert_parallel_comm =
        arguments.flag("overlap_moe_expert_parallel_comm", "parallel.overlap_moe_expert_parallel_comm");
    parallel.delay_wgrad_compute = arguments.flag("delay_wgrad_compute", "parallel.delay_wgrad_compute");
}

void import_tensor_communication(Arguments& arguments, types::ParallelLayout& parallel) {
    parallel.tp_comm_overlap = arguments.flag("tp_comm_overlap", "parallel.tp_comm_overlap");
    parallel.defer_embedding_wgrad_compute =
        arguments.flag("defer_embedding_wgrad_compute", "parallel.defer_embedding_wgrad_compute");
    if (parallel.tp_comm_overlap)
        arguments.note("tp_comm_overlap", "counted in the memory; timed with transfers beside the GEMMs, not inside");
    if (parallel.defer_embedding_wgrad_compute)
        arguments.note("defer_embedding_wgrad_compute", "counted in the memory; timed where they are without it");
    arguments.count("wgrad_deferral_limit", "parallel.wgrad_deferral_limit", parallel.wgrad_deferral_limit,
                    IntegerRange{0, 10'000'000});
}

}  // namespace

void import_layout(Arguments& arguments, ScenarioDraft& draft) {
    types::ParallelLayout& parallel = draft.scenario.parallel;
    import_sizes(arguments, draft);
    import_sequence_parallel(arguments, parallel);
    import_uneven_stages(arguments, parallel);
    import_virtual_stages(arguments, draft);
    arguments.count("microbatch_group_size_per_virtual_pipeline_stage",
                    "parallel.microbatch_group_size_per_virtual_pipeline_stage",
                    parallel.microbatch_group_size_per_virtual_pipeline_stage, kRanks);
    parallel.overlap_p2p_comm = !arguments.flag("no_overlap_p2p_communication", "parallel.overlap_p2p_comm");
    import_context_communication(arguments, parallel);
    import_context_levels(arguments, parallel);
    import_tensor_communication(arguments, parallel);
    import_expert_dispatch(arguments, parallel, draft.model.model.has_experts());
}

}  // namespace stowage::reader
