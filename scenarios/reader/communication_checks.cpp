#include "scenarios/reader/check_tools.hpp"
#include "scenarios/reader/checks.hpp"

namespace stowage::reader {
namespace {

using types::ContextCommunication;
using types::TokenDispatcher;

constexpr std::string_view kKind = "parallel.cp_comm_type";
constexpr std::string_view kSizes = "parallel.hierarchical_context_parallel_sizes";
constexpr std::string_view kDispatcher = "parallel.moe_token_dispatcher_type";
constexpr std::string_view kSharedOverlap = "parallel.moe_shared_expert_overlap";

/// Each rank of an a2a exchange takes whole heads.
void check_heads_of_exchange(Gathered& gathered, const types::Scenario& scenario, std::int64_t ranks) {
    const types::Model& model = scenario.model;
    const std::int64_t tensor = scenario.parallel.tensor_model_parallel_size;
    if (!all_read(gathered, {kTensor, kContext, "model.num_attention_heads", "model.num_query_groups"})) return;
    const std::string name = "the a2a ranks";
    if (model.num_attention_heads % tensor == 0)
        require_multiple(gathered, kKind, "num_attention_heads of a tensor-parallel rank",
                         model.num_attention_heads / tensor, name, ranks);
    if (model.num_query_groups % tensor == 0 && model.num_query_groups != model.num_attention_heads)
        require_multiple(gathered, kKind, "num_query_groups of a tensor-parallel rank", model.num_query_groups / tensor,
                         name, ranks);
}

/// Source: Transformer Engine's DotProductAttention; Megatron-LM, arguments.py for the hierarchy.
void check_context(Gathered& gathered, const types::Scenario& scenario) {
    const types::ParallelLayout& parallel = scenario.parallel;
    const auto& sizes = parallel.hierarchical_context_parallel_sizes;
    if (!all_read(gathered, {kKind, kSizes, kContext})) return;
    const bool hierarchical = parallel.cp_comm_type == ContextCommunication::a2a_p2p;
    require(gathered, kSizes, !sizes.empty() && !hierarchical, "cp_comm_type: a2a+p2p");
    if (parallel.context_parallel_size == 1) return;
    if (parallel.cp_comm_type == ContextCommunication::a2a)
        check_heads_of_exchange(gathered, scenario, parallel.context_parallel_size);
    if (!hierarchical) return;
    require(gathered, kKind, sizes.empty(), "hierarchical_context_parallel_sizes");
    if (sizes.empty()) return;
    if (sizes.size() != 2)
        return report(gathered, kSizes,
                      "found " + number(std::ssize(sizes)) + " items, expected the inner and the outer ranks");
    if (product(sizes[0], sizes[1]) != parallel.context_parallel_size)
        return report(gathered, kSizes,
                      number(sizes[0]) + " x " + number(sizes[1]) + " is not context_parallel_size " +
                          number(parallel.context_parallel_size));
    check_heads_of_exchange(gathered, scenario, sizes[0]);
}

/// Source: Megatron-LM, transformer_config.py.
void check_dispatcher(Gathered& gathered, const types::Scenario& scenario) {
    constexpr std::string_view kBackend = "parallel.moe_flex_dispatcher_backend";
    const types::ParallelLayout& parallel = scenario.parallel;
    if (unread(gathered, kDispatcher)) return;
    require(gathered, kBackend,
            gathered.where.contains(kBackend) && parallel.moe_token_dispatcher_type != TokenDispatcher::flex,
            "moe_token_dispatcher_type: flex");
    if (!parallel.moe_shared_expert_overlap) return;
    require(gathered, kSharedOverlap, parallel.moe_token_dispatcher_type != TokenDispatcher::alltoall,
            "moe_token_dispatcher_type: alltoall");
    require(gathered, kSharedOverlap,
            scenario.model.moe_shared_expert_intermediate_size == 0 &&
                !unread(gathered, "model.moe_shared_expert_intermediate_size"),
            "a model with moe_shared_expert_intermediate_size");
}

}  // namespace

void check_communication(Gathered& gathered, const types::Scenario& scenario) {
    check_context(gathered, scenario);
    check_dispatcher(gathered, scenario);
}

}  // namespace stowage::reader
