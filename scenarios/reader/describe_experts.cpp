#include "scenarios/reader/drafts.hpp"

namespace stowage::reader {
namespace {

constexpr IntegerRange kWidth{1, 10'000'000};
constexpr IntegerRange kWidthOrNone{0, 10'000'000};
constexpr IntegerRange kExperts{0, 100'000};
constexpr NumberRange kCapacity{1e-3, 1e5};
constexpr NumberRange kScaling{1e-6, 1e6};

}  // namespace

void describe_experts(Fields& fields, ModelDraft& draft) {
    types::Model& model = draft.model;
    fields.count({"num_experts", "experts of a MoE layer; 0: a dense model"}, model.num_experts, kExperts);
    fields.count({"moe_router_topk", "experts that see a token; default 2"}, model.moe_router_topk,
                 IntegerRange{1, 100'000});
    fields.count({"moe_ffn_hidden_size", "width inside an expert; default ffn_hidden_size"}, model.moe_ffn_hidden_size,
                 kWidth);
    fields.count_or_none({"moe_shared_expert_intermediate_size", "width of the shared expert; 0 or null: none"},
                         model.moe_shared_expert_intermediate_size, kWidthOrNone);
    fields.flag({"moe_shared_expert_gate", "a gate on the shared expert"}, model.moe_shared_expert_gate);
    fields.count_or_none({"moe_latent_size", "width that routed experts work in; 0 or null: hidden_size"},
                         model.moe_latent_size, kWidthOrNone);
    fields.flag(
        {"moe_grouped_gemm", "all experts in one call; false: one after another, in the memory, not in the times"},
        model.moe_grouped_gemm);
    fields.flag({"moe_permute_fusion", "token copies ordered and summed by fused kernels"}, model.moe_permute_fusion);
    fields.choice({"moe_router_score_function", "what makes scores of the router's logits"},
                  model.moe_router_score_function);
    fields.flag({"moe_router_pre_softmax", "the softmax is over all experts, not only over those chosen"},
                model.moe_router_pre_softmax);
    fields.count_or_none({"moe_router_num_groups", "groups of experts that are chosen first; 0 or null: none"},
                         model.moe_router_num_groups, kExperts);
    fields.count_or_none({"moe_router_group_topk", "groups that a token's experts come from"},
                         model.moe_router_group_topk, kExperts);
    fields.number({"moe_router_topk_scaling_factor", "of the weights of the chosen experts"},
                  model.moe_router_topk_scaling_factor, kScaling);
    fields.flag({"moe_router_enable_expert_bias", "a bias for each expert instead of a balancing loss"},
                model.moe_router_enable_expert_bias);
    fields.optional_number({"moe_expert_capacity_factor", "tokens an expert takes over the mean; null: all"},
                           model.moe_expert_capacity_factor, kCapacity, "null");
    fields.flag({"moe_pad_expert_input_to_capacity", "every expert takes that many, padded"},
                model.moe_pad_expert_input_to_capacity);
    fields.frequency({"moe_layer_freq", "n: every n-th layer from layer 0 has experts; or for each layer 0 or 1"},
                     draft.moe_layer_freq);
    fields.refused("moe_token_drop_policy", "leave it out: which tokens are dropped changes no size");
}

}  // namespace stowage::reader
