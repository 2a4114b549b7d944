#include "planner/layers/attention_backend.hpp"

namespace stowage::layers {
namespace {

using types::Scenario;

constexpr int kHopper = 90;
constexpr int kBlackwell = 100;

bool is_zero(const Scenario& scenario, const char* variable) {
    const auto given = scenario.env.find(variable);
    return given != scenario.env.end() && given->second == "0";
}

bool has_flash(const Scenario& scenario) {
    constexpr std::int64_t kLargestHead = 256;
    const types::Model& model = scenario.model;
    const std::int64_t query = model.qk_head_dim + model.qk_pos_emb_head_dim;
    const bool one_size = !model.multi_latent_attention || query == model.v_head_dim;
    const std::int64_t size = model.multi_latent_attention ? query : model.kv_channels;
    return !is_zero(scenario, "NVTE_FLASH_ATTN") && one_size && size <= kLargestHead &&
           model.softmax_type == types::SoftmaxType::vanilla;
}

bool has_fused(const Scenario& scenario) {
    const int capability = scenario.hardware.node.device.compute_capability;
    const bool deterministic =
        scenario.model.deterministic_mode || is_zero(scenario, "NVTE_ALLOW_NONDETERMINISTIC_ALGO");
    const bool strays = capability < kHopper || (capability >= kBlackwell && scenario.model.attention_dropout > 0);
    return !is_zero(scenario, "NVTE_FUSED_ATTN") && !(deterministic && strays);
}

}  // namespace

AttentionBackend attention_backend(const Scenario& scenario) {
    if (scenario.model.transformer_impl == types::TransformerImpl::local) return AttentionBackend::unfused;
    const bool prefers_fused = scenario.hardware.node.device.compute_capability >= kHopper;
    const bool flash = has_flash(scenario);
    if (has_fused(scenario) && (prefers_fused || !flash)) return AttentionBackend::fused;
    return flash ? AttentionBackend::flash : AttentionBackend::unfused;
}

}  // namespace stowage::layers
