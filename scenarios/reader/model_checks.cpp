#include <algorithm>

#include "scenarios/reader/check_tools.hpp"
#include "scenarios/reader/checks.hpp"

namespace stowage::reader {
namespace {

constexpr double kMostParameters = 1e15;

/// A model's keys, by name.
class ModelChecks {
public:
    ModelChecks(Gathered& gathered, const ModelDraft& draft, const types::Model& model, const std::string& root)
        : gathered_(gathered), draft_(draft), model_(model), root_(root) {}

    void check_heads() {
        const std::int64_t heads = model_.num_attention_heads;
        if (model_.multi_latent_attention) return;
        if (read("num_attention_heads") && read("num_query_groups") && model_.num_query_groups > 0)
            require_multiple(gathered_, path("num_query_groups"), "num_attention_heads", heads, "num_query_groups",
                             model_.num_query_groups);
        if (read("num_attention_heads") && read("hidden_size") && !given("kv_channels"))
            require_multiple(gathered_, path("hidden_size"), "without kv_channels, hidden_size", model_.hidden_size,
                             "num_attention_heads", heads);
    }

    void check_widths() {
        const bool dense_without_width = has_dense_layers(model_) && model_.ffn_hidden_size == 0;
        const bool experts_without_width = model_.has_experts() && model_.moe_ffn_hidden_size == 0;
        if (read("hidden_size") && read("ffn_hidden_size") && read("num_experts") && read("moe_layer_freq") &&
            read("moe_ffn_hidden_size") && (dense_without_width || experts_without_width))
            report(gathered_, path("hidden_size"),
                   "without ffn_hidden_size, hidden_size " + number(model_.hidden_size) + " gives an MLP of width 0",
                   "give ffn_hidden_size; with swiglu it is 8/3 of hidden_size by default, rounded down to a multiple "
                   "of 64");
    }

    void check_attention() {
        if (read("position_embedding_type") && read("max_position_embeddings") && model_.max_position_embeddings == 0 &&
            model_.position_embedding_type == types::PositionEmbedding::learned_absolute)
            report(gathered_, path("position_embedding_type"), "learned_absolute needs max_position_embeddings");
        needs("qk_norm_span", model_.qk_norm_span == types::QkNormSpan::width && !model_.qk_layernorm,
              "qk_layernorm: true");
        if (given("window_attn_skip_freq")) needs("window_attn_skip_freq", !given("window_size"), "window_size");
        check_length("window_attn_skip_freq", model_.window_layers.size());
        for (const char* name :
             {"q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "rope_type"})
            if (given(name)) needs(name, !given("multi_latent_attention"), "multi_latent_attention: true");
    }

    void check_experts() {
        if (read("moe_router_topk") && read("num_experts") && model_.has_experts() &&
            model_.moe_router_topk > model_.num_experts)
            report(gathered_, path("moe_router_topk"),
                   "found " + number(model_.moe_router_topk) + ", expected at most num_experts " +
                       number(model_.num_experts));
        check_length("moe_layer_freq", model_.moe_layer_freq.size());
        needs("moe_shared_expert_gate",
              model_.moe_shared_expert_gate && model_.moe_shared_expert_intermediate_size == 0,
              "moe_shared_expert_intermediate_size");
        needs("moe_pad_expert_input_to_capacity",
              model_.moe_pad_expert_input_to_capacity && !model_.moe_expert_capacity_factor,
              "moe_expert_capacity_factor");
        needs("moe_router_enable_expert_bias",
              model_.moe_router_enable_expert_bias && model_.moe_router_score_function != types::RouterScore::sigmoid,
              "moe_router_score_function: sigmoid");
        check_router_groups();
        if (given("num_experts")) return;
        for (const char* name :
             {"moe_router_topk", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size", "moe_shared_expert_gate",
              "moe_latent_size", "moe_router_score_function", "moe_router_pre_softmax", "moe_router_num_groups",
              "moe_router_group_topk", "moe_router_topk_scaling_factor", "moe_router_enable_expert_bias",
              "moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity", "moe_layer_freq"})
            if (given(name)) needs(name, read("num_experts"), "num_experts");
    }

    void check_router_groups() {
        const std::int64_t groups = model_.moe_router_num_groups;
        const std::int64_t chosen = model_.moe_router_group_topk;
        if (!read("moe_router_num_groups") || !read("moe_router_group_topk") || !read("num_experts")) return;
        needs("moe_router_group_topk", chosen > 0 && groups == 0, "moe_router_num_groups");
        needs("moe_router_num_groups", groups > 0 && chosen == 0, "moe_router_group_topk");
        if (groups == 0 || chosen == 0) return;
        if (model_.has_experts())
            require_multiple(gathered_, path("moe_router_num_groups"), "num_experts", model_.num_experts,
                             "moe_router_num_groups", groups);
        if (chosen > groups)
            report(gathered_, path("moe_router_group_topk"),
                   "found " + number(chosen) + ", expected at most moe_router_num_groups " + number(groups));
        else if (read("moe_router_topk") && model_.moe_router_topk > chosen * (model_.num_experts / groups))
            report(gathered_, path("moe_router_topk"),
                   "found " + number(model_.moe_router_topk) + ", expected at most the experts of " + number(chosen) +
                       " groups, " + number(chosen * (model_.num_experts / groups)));
    }

    void check_hybrid() {
        constexpr const char* kPattern = "hybrid_layer_pattern";
        if (!read(kPattern)) return;
        if (!draft_.hybrid) return check_linear_attention();
        for (const char* name : {"moe_layer_freq", "experimental_attention_variant", "linear_attention_freq"})
            if (given(name) && read(name))
                report(gathered_, path(name), "stands beside hybrid_layer_pattern, which says what each layer is");
        check_length(kPattern, model_.mixers.size());
        const auto depths = static_cast<std::int64_t>(draft_.hybrid->mtp_depths);
        if (depths > 0 && read("mtp_num_layers") && model_.mtp_num_layers != depths)
            report(gathered_, path("mtp_num_layers"),
                   "found " + number(model_.mtp_num_layers) + ", but hybrid_layer_pattern has " + number(depths));
        const auto has = [](const std::vector<types::FeedForward>& layers) {
            return std::find(layers.begin(), layers.end(), types::FeedForward::moe) != layers.end();
        };
        const bool moe = has(model_.feed_forward) || has(model_.mtp_feed_forward);
        needs(kPattern, moe && !model_.has_experts() && read("num_experts"), "num_experts for its layers E");
        check_mamba();
    }

    /// Sizes stay far inside 64-bit arithmetic.
    void check_total() {
        if (unread(gathered_, root_)) return;
        const std::int64_t head = std::max(
            {model_.kv_channels, model_.qk_head_dim + model_.qk_pos_emb_head_dim, model_.v_head_dim, std::int64_t{1}});
        const double width = static_cast<double>(
            std::max({model_.hidden_size, product(model_.num_attention_heads, head), model_.q_lora_rank,
                      model_.kv_lora_rank, product(model_.mamba_num_heads, model_.mamba_head_dim),
                      product(model_.mamba_num_groups, model_.mamba_state_dim),
                      product(model_.linear_num_key_heads, model_.linear_key_head_dim),
                      product(model_.linear_num_value_heads, model_.linear_value_head_dim)}));
        const double ffn = static_cast<double>(
            std::max({model_.ffn_hidden_size, model_.moe_ffn_hidden_size, model_.moe_shared_expert_intermediate_size}));
        const double experts = static_cast<double>(std::max<std::int64_t>(model_.num_experts, 1));
        const double layer = width * (4 * width + 3 * ffn * experts);
        const double layers = static_cast<double>(model_.num_layers + model_.mtp_num_layers);
        const double parameters = layer * layers + 2 * width * static_cast<double>(model_.vocab_size);
        if (parameters > kMostParameters)
            report(gathered_, path("num_layers"), "the model has more than 10^15 parameters, expected fewer");
    }

private:
    [[nodiscard]] std::string path(const char* name) const { return root_.empty() ? name : root_ + "." + name; }
    [[nodiscard]] bool given(const char* name) const { return gathered_.where.contains(path(name)); }
    [[nodiscard]] bool read(const char* name) const { return !unread(gathered_, path(name)); }
    void needs(const char* name, bool missing, const std::string& other) {
        require(gathered_, path(name), missing, other);
    }
    /// One answer for each layer, or none at all.
    void check_length(const char* name, std::size_t found) {
        const auto count = static_cast<std::int64_t>(found);
        if (read(name) && read("num_layers") && count > 0 && count != model_.num_layers)
            report(gathered_, path(name),
                   "found " + number(count) + " items, expected num_layers " + number(model_.num_layers));
    }

    void check_linear_attention() {
        const bool has_frequency = draft_.linear_attention_freq.every || !draft_.linear_attention_freq.layers.empty();
        if (!read("linear_attention_freq") || !read("experimental_attention_variant")) return;
        needs("experimental_attention_variant", draft_.linear_attention && !has_frequency, "linear_attention_freq");
        needs("linear_attention_freq", has_frequency && !given("experimental_attention_variant"),
              "experimental_attention_variant");
        if (!draft_.linear_attention) return;
        check_length("linear_attention_freq", model_.mixers.size());
        if (read("linear_num_value_heads") && read("linear_num_key_heads"))
            require_multiple(gathered_, path("linear_num_value_heads"), "linear_num_value_heads",
                             model_.linear_num_value_heads, "linear_num_key_heads", model_.linear_num_key_heads);
    }

    void check_mamba() {
        if (std::find(model_.mixers.begin(), model_.mixers.end(), types::Mixer::mamba) == model_.mixers.end()) return;
        if (!read("hidden_size") || !read("mamba_head_dim") || !read("mamba_num_heads")) return;
        const bool derived = draft_.model.mamba_num_heads == 0;
        if (derived && 2 * model_.hidden_size % model_.mamba_head_dim != 0)
            return report(gathered_, path("mamba_head_dim"),
                          "without mamba_num_heads, 2 x hidden_size " + number(2 * model_.hidden_size) +
                              " is not a multiple of mamba_head_dim " + number(model_.mamba_head_dim));
        if (!read("mamba_num_groups")) return;
        const char* at = given("mamba_num_groups") ? "mamba_num_groups" : derived ? "hidden_size" : "mamba_num_heads";
        require_multiple(gathered_, path(at), "mamba_num_heads", model_.mamba_num_heads, "mamba_num_groups",
                         model_.mamba_num_groups);
    }

    Gathered& gathered_;
    const ModelDraft& draft_;
    const types::Model& model_;
    const std::string& root_;
};

}  // namespace

bool has_dense_layers(const types::Model& model) {
    if (!model.feed_forward.empty())
        return std::find(model.feed_forward.begin(), model.feed_forward.end(), types::FeedForward::dense) !=
               model.feed_forward.end();
    if (!model.has_experts()) return true;
    return std::find(model.moe_layer_freq.begin(), model.moe_layer_freq.end(), false) != model.moe_layer_freq.end();
}

void check_model(Gathered& gathered, const ModelDraft& draft, const types::Model& model, const std::string& root) {
    ModelChecks checks(gathered, draft, model, root);
    checks.check_heads();
    checks.check_widths();
    checks.check_experts();
    checks.check_attention();
    checks.check_hybrid();
    checks.check_total();
}

}  // namespace stowage::reader
