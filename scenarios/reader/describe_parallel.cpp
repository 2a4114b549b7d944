#include <algorithm>
#include <string>
#include <utility>

#include "scenarios/reader/drafts.hpp"
#include "scenarios/types/stages.hpp"

namespace stowage::reader {
namespace {

constexpr IntegerRange kRanks{1, 1'000'000};
constexpr IntegerRange kStageLayers{0, 100'000};

void describe_sizes(Fields& fields, ScenarioDraft& draft) {
    types::ParallelLayout& parallel = draft.scenario.parallel;
    fields.count({"tensor_model_parallel_size", "ranks that share a layer"}, parallel.tensor_model_parallel_size,
                 kRanks);
    fields.count({"pipeline_model_parallel_size", "pipeline stages"}, parallel.pipeline_model_parallel_size, kRanks);
    fields.count({"context_parallel_size", "ranks that share a sequence"}, parallel.context_parallel_size, kRanks);
    fields.count({"expert_model_parallel_size", "ranks that share the experts"}, parallel.expert_model_parallel_size,
                 kRanks);
    fields.optional_count({"expert_tensor_parallel_size", "ranks that share an expert; default: tensor parallel"},
                          draft.expert_tensor_parallel_size, kRanks, {});
    fields.optional_count({"data_parallel_size", "replicas; default: the GPUs that are left"}, draft.data_parallel_size,
                          kRanks, {});
    fields.flag({"sequence_parallel", "norms and dropout split over tensor-parallel ranks"},
                parallel.sequence_parallel);
}

void describe_pipeline(Fields& fields, ScenarioDraft& draft) {
    types::ParallelLayout& parallel = draft.scenario.parallel;
    fields.optional_count({"num_virtual_stages_per_pipeline_rank",
                           "model chunks of a pipeline rank; default: those of the layout string, or 1"},
                          draft.virtual_stages, kRanks, "null");
    fields.optional_count({"num_layers_per_virtual_pipeline_stage", "layers of a chunk, in place of their number"},
                          draft.layers_per_virtual_stage, IntegerRange{1, 100'000}, "null");
    fields.optional_count({"decoder_first_pipeline_num_layers", "layers of the first stage"},
                          parallel.decoder_first_pipeline_num_layers, kStageLayers, "null");
    fields.optional_count({"decoder_last_pipeline_num_layers", "layers of the last stage"},
                          parallel.decoder_last_pipeline_num_layers, kStageLayers, "null");
    fields.flag({"account_for_embedding_in_pipeline_split", "the embedding counts as a layer"},
                parallel.account_for_embedding_in_pipeline_split);
    fields.flag({"account_for_loss_in_pipeline_split", "the loss counts as a layer"},
                parallel.account_for_loss_in_pipeline_split);
    fields.text({"pipeline_model_parallel_layout", "what each stage holds, such as Et*3|(tt|)*6mL"},
                parallel.pipeline_model_parallel_layout);
    fields.optional_count({"microbatch_group_size_per_virtual_pipeline_stage",
                           "microbatches that pass a chunk before the next chunk's turn; default: the pipeline's size"},
                          parallel.microbatch_group_size_per_virtual_pipeline_stage, kRanks, "null");
    fields.flag({"overlap_p2p_comm", "interleaved stages: transfers beside compute"}, parallel.overlap_p2p_comm);
}

void describe_context(Fields& fields, types::ParallelLayout& parallel) {
    using Kind = types::ContextCommunication;
    const auto set = [&](const std::vector<ScalarValue>& kinds) {
        for (const ScalarValue& kind : kinds)
            if (chosen<Kind>(kind) != chosen<Kind>(kinds.front()))
                return fields.problem("cp_comm_type",
                                      "layers that differ are known, but this version cannot plan them yet");
        if (!kinds.empty()) parallel.cp_comm_type = chosen<Kind>(kinds.front());
    };
    fields.list({"cp_comm_type", "how context-parallel ranks exchange keys and values; or the same for each layer"},
                ScalarKind{choice_kind<Kind>()}, set, ScalarKind{choice_kind<Kind>()},
                [&](const ScalarValue& read) { parallel.cp_comm_type = chosen<Kind>(read); });
    const auto set_sizes = [&](const std::vector<ScalarValue>& sizes) {
        parallel.hierarchical_context_parallel_sizes.clear();
        for (const ScalarValue& size : sizes)
            parallel.hierarchical_context_parallel_sizes.push_back(std::get<std::int64_t>(size));
    };
    fields.list({"hierarchical_context_parallel_sizes", "a2a+p2p: ranks of the inner and of the outer exchange"},
                ScalarKind{kRanks}, set_sizes, std::nullopt, {});
}

void describe_expert_communication(Fields& fields, types::ParallelLayout& parallel) {
    fields.choice({"moe_token_dispatcher_type", "how tokens reach their experts"}, parallel.moe_token_dispatcher_type);
    fields.choice({"moe_flex_dispatcher_backend", "whose kernels flex uses"}, parallel.moe_flex_dispatcher_backend);
    fields.flag({"moe_shared_expert_overlap", "shared experts beside the dispatch"},
                parallel.moe_shared_expert_overlap);
    fields.flag({"overlap_moe_expert_parallel_comm", "dispatch and combine beside another microbatch's compute"},
                parallel.overlap_moe_expert_parallel_comm);
    fields.flag({"delay_wgrad_compute", "weight gradients apart from the other backward"},
                parallel.delay_wgrad_compute);
}

void describe_tensor_communication(Fields& fields, types::ParallelLayout& parallel) {
    fields.flag(
        {"tp_comm_overlap", "tensor-parallel transfers inside the linears' GEMMs; in the memory, not in the times"},
        parallel.tp_comm_overlap);
    fields.flag({"defer_embedding_wgrad_compute",
                 "the output layer's weight gradients in the pipeline's flush; in the memory, not in the times"},
                parallel.defer_embedding_wgrad_compute);
    fields.count({"wgrad_deferral_limit", "of so many microbatches at most; 0: of all"}, parallel.wgrad_deferral_limit,
                 IntegerRange{0, 10'000'000});
}

void complete_data_parallel(ScenarioDraft& draft) {
    types::ParallelLayout& parallel = draft.scenario.parallel;
    if (draft.data_parallel_size) {
        parallel.data_parallel_size = *draft.data_parallel_size;
        return;
    }
    const std::int64_t gpus = draft.scenario.hardware.gpus();
    // Each factor is at most 10^6: dividing one after another cannot overflow, and equals dividing by the product.
    const std::int64_t left = gpus / parallel.tensor_model_parallel_size / parallel.pipeline_model_parallel_size /
                              parallel.context_parallel_size;
    const bool divides = left > 0 && left * parallel.tensor_model_parallel_size *
                                             parallel.pipeline_model_parallel_size * parallel.context_parallel_size ==
                                         gpus;
    parallel.data_parallel_size = divides ? left : 0;
}

/// The stages that a hybrid pattern marks, as a layout string.
std::string letters_of(const HybridPattern& pattern, std::int64_t mtp_layers) {
    std::string letters = "E";
    for (std::size_t stage = 0; stage < pattern.stages.size(); ++stage) {
        if (stage > 0) letters += '|';
        letters.append(pattern.stages[stage], 't');
    }
    letters.append(static_cast<std::size_t>(mtp_layers), 'm');
    return letters + 'L';
}

/// 0 if they do not divide.
std::int64_t quotient(std::int64_t whole, std::int64_t part) {
    return part > 0 && whole % part == 0 ? whole / part : 0;
}

std::int64_t virtual_stages(const ScenarioDraft& draft) {
    const types::ParallelLayout& parallel = draft.scenario.parallel;
    const std::int64_t ranks = parallel.pipeline_model_parallel_size;
    if (draft.virtual_stages) return *draft.virtual_stages;
    if (draft.layers_per_virtual_stage) {
        const std::int64_t extra = (parallel.account_for_embedding_in_pipeline_split ? 1 : 0) +
                                   (parallel.account_for_loss_in_pipeline_split ? 1 : 0);
        return quotient(quotient(draft.scenario.model.num_layers + extra, ranks), *draft.layers_per_virtual_stage);
    }
    if (parallel.pipeline_model_parallel_layout.empty()) return 1;
    const auto parsed = types::parse_stage_letters(parallel.pipeline_model_parallel_layout);
    const auto* stages = std::get_if<std::vector<std::string>>(&parsed);
    return stages == nullptr ? 1 : std::max<std::int64_t>(1, quotient(std::ssize(*stages), ranks));
}

}  // namespace

void describe_parallel(Fields& fields, ScenarioDraft& draft) {
    describe_sizes(fields, draft);
    describe_pipeline(fields, draft);
    describe_context(fields, draft.scenario.parallel);
    describe_expert_communication(fields, draft.scenario.parallel);
    describe_tensor_communication(fields, draft.scenario.parallel);
}

void complete_layout(ScenarioDraft& draft) {
    types::ParallelLayout& parallel = draft.scenario.parallel;
    parallel.expert_tensor_parallel_size =
        draft.expert_tensor_parallel_size.value_or(parallel.tensor_model_parallel_size);
    complete_data_parallel(draft);
    const auto& hybrid = draft.model.hybrid;
    if (hybrid && hybrid->stages.size() > 1 && parallel.pipeline_model_parallel_layout.empty())
        parallel.pipeline_model_parallel_layout = letters_of(*hybrid, draft.scenario.model.mtp_num_layers);
    parallel.num_virtual_stages_per_pipeline_rank = virtual_stages(draft);
}

}  // namespace stowage::reader
