// What a model file may say beyond the sizes of a plain transformer, and what Megatron makes of it.
#include <gtest/gtest.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "tests/scenarios/reader/temporary_folder.hpp"

namespace stowage::reader::testing {
namespace {

using types::FeedForward;
using types::Mixer;
using Layers = std::vector<bool>;

class ModelLanguage : public ::testing::Test {
protected:
    /// A model of four layers with these keys.
    static types::Model read(const std::string& keys) {
        write_file("model.yaml",
                   "schema: stowage/model/1\nnum_layers: 4\nhidden_size: 1024\nnum_attention_heads: 16\n"
                   "vocab_size: 32000\n" +
                       keys);
        return read_model("model.yaml");
    }

private:
    TemporaryFolder folder_;
};

TEST_F(ModelLanguage, FillsInMegatronsLatentAttention) {
    const types::Model model = read("multi_latent_attention: true\nnum_query_groups: 4\n");
    EXPECT_EQ(model.q_lora_rank, 512);
    EXPECT_EQ(model.kv_lora_rank, 512);
    EXPECT_EQ(model.qk_head_dim, 128);
    EXPECT_EQ(model.qk_pos_emb_head_dim, 64);
    EXPECT_EQ(model.v_head_dim, 128);
    EXPECT_EQ(model.rope_type, types::RopeType::yarn);
    EXPECT_EQ(model.num_query_groups, 16);  // keys and values for each head
    EXPECT_EQ(read("").rope_type, types::RopeType::rope);
}

TEST_F(ModelLanguage, ReadsLatentAttention) {
    const types::Model model = read(
        "multi_latent_attention: true\nq_lora_rank: 1536\nkv_lora_rank: 256\nqk_head_dim: 192\n"
        "qk_pos_emb_head_dim: 32\nv_head_dim: 256\nrope_type: rope\n");
    EXPECT_EQ(model.q_lora_rank, 1536);
    EXPECT_EQ(model.kv_lora_rank, 256);
    EXPECT_EQ(model.qk_head_dim, 192);
    EXPECT_EQ(model.qk_pos_emb_head_dim, 32);
    EXPECT_EQ(model.v_head_dim, 256);
    EXPECT_EQ(model.rope_type, types::RopeType::rope);
    EXPECT_EQ(read("multi_latent_attention: true\nq_lora_rank: null\n").q_lora_rank, 0);
    EXPECT_EQ(read("multi_latent_attention: true\nq_lora_rank: 0\n").q_lora_rank, 0);
}

TEST_F(ModelLanguage, ReadsWhatAttentionMayHave) {
    const types::Model model =
        read("qk_layernorm: true\nqk_norm_span: width\nattention_output_gate: true\nsoftmax_type: off-by-one\n");
    EXPECT_EQ(model.qk_norm_span, types::QkNormSpan::width);
    EXPECT_TRUE(model.attention_output_gate);
    EXPECT_EQ(model.softmax_type, types::SoftmaxType::off_by_one);
}

TEST_F(ModelLanguage, ReadsWindowsAsANumberOrMegatronsPair) {
    EXPECT_EQ(read("window_size: 128\n").window_size, 128);
    EXPECT_EQ(read("window_size: [127, 0]\n").window_size, 127);
    EXPECT_EQ(read("window_size: [127, -1]\n").window_size, 127);
    EXPECT_EQ(read("window_size: [-1, 0]\n").window_size, std::nullopt);
    EXPECT_EQ(read("window_size: -1\n").window_size, std::nullopt);
    EXPECT_EQ(read("window_size: null\n").window_size, std::nullopt);
    EXPECT_TRUE(read("window_size: 128\n").is_windowed_layer(3));
}

TEST_F(ModelLanguage, LetsEveryNthLayerSeeAll) {
    // Megatron counts layers from 1: with 2, layers 2 and 4 see all.
    EXPECT_EQ(read("window_size: 128\nwindow_attn_skip_freq: 2\n").window_layers, (Layers{true, false, true, false}));
    EXPECT_EQ(read("window_size: 128\nwindow_attn_skip_freq: 3\n").window_layers, (Layers{true, true, false, true}));
    EXPECT_EQ(read("window_size: 128\nwindow_attn_skip_freq: [0, 1, 1, 0]\n").window_layers,
              (Layers{false, true, true, false}));
    EXPECT_EQ(read("window_size: 128\nwindow_attn_skip_freq: \"[1]*3+[0]\"\n").window_layers,
              (Layers{true, true, true, false}));
    EXPECT_EQ(read("window_size: 128\nwindow_attn_skip_freq: null\n").window_layers, Layers{});
    EXPECT_EQ(read("window_size: null\nwindow_attn_skip_freq: 2\n").window_layers, Layers{});
}

TEST_F(ModelLanguage, ReadsQuickGeglu) {
    const types::Model model = read("quick_geglu: true\n");
    EXPECT_EQ(model.activation, types::Activation::quick_geglu);
    EXPECT_EQ(model.ffn_hidden_size, 4096);  // Megatron takes two thirds of it under swiglu only
    EXPECT_EQ(read("quick_geglu: false\n").activation, types::Activation::swiglu);
    EXPECT_EQ(read("swiglu: false\nquick_geglu: true\n").activation, types::Activation::quick_geglu);
}

TEST_F(ModelLanguage, ReadsHowExpertsAreChosenAndWeighed) {
    const types::Model model = read(
        "num_experts: 8\nmoe_router_pre_softmax: true\nmoe_router_num_groups: 4\nmoe_router_group_topk: 2\n"
        "moe_router_topk_scaling_factor: 2.5\n");
    EXPECT_TRUE(model.moe_router_pre_softmax);
    EXPECT_EQ(model.moe_router_num_groups, 4);
    EXPECT_EQ(model.moe_router_group_topk, 2);
    EXPECT_EQ(model.moe_router_topk_scaling_factor, 2.5);
    const types::Model usual = read("num_experts: 8\nmoe_router_num_groups: null\n");
    EXPECT_FALSE(usual.moe_router_pre_softmax);
    EXPECT_EQ(usual.moe_router_num_groups, 0);
    EXPECT_EQ(usual.moe_router_group_topk, 0);
    EXPECT_EQ(usual.moe_router_topk_scaling_factor, 1);
}

TEST_F(ModelLanguage, ReadsExperts) {
    const types::Model model = read(
        "num_experts: 8\nmoe_shared_expert_intermediate_size: 512\nmoe_shared_expert_gate: true\n"
        "moe_latent_size: 256\nmoe_router_score_function: sigmoid\nmoe_router_enable_expert_bias: true\n"
        "moe_expert_capacity_factor: 1.5\nmoe_pad_expert_input_to_capacity: true\nmtp_num_layers: 2\n");
    EXPECT_TRUE(model.moe_shared_expert_gate);
    EXPECT_EQ(model.moe_latent_size, 256);
    EXPECT_EQ(model.moe_router_score_function, types::RouterScore::sigmoid);
    EXPECT_TRUE(model.moe_router_enable_expert_bias);
    EXPECT_EQ(model.moe_expert_capacity_factor, 1.5);
    EXPECT_TRUE(model.drop_and_pad());
    EXPECT_EQ(model.mtp_num_layers, 2);
    EXPECT_EQ(read("num_experts: 8\nmoe_expert_capacity_factor: null\n").moe_expert_capacity_factor, std::nullopt);
    EXPECT_EQ(read("num_experts: 8\nmoe_latent_size: null\nmtp_num_layers: null\n").moe_latent_size, 0);
}

TEST_F(ModelLanguage, ReadsExpertLayersInEachForm) {
    EXPECT_EQ(read("num_experts: 8\nmoe_layer_freq: 2\n").moe_layer_freq, (Layers{true, false, true, false}));
    EXPECT_EQ(read("num_experts: 8\nmoe_layer_freq: [0, 1, 1, 1]\n").moe_layer_freq, (Layers{false, true, true, true}));
    EXPECT_EQ(read("num_experts: 8\nmoe_layer_freq: ([0]*1+[1]*3)\n").moe_layer_freq,
              (Layers{false, true, true, true}));
    EXPECT_EQ(read("num_experts: 8\nmoe_layer_freq: 1\n").moe_layer_freq, Layers{});
}

TEST_F(ModelLanguage, ReadsLinearAttention) {
    // As Megatron: of every 4 layers the last is attention.
    const types::Model model = read(
        "experimental_attention_variant: gated_delta_net\nlinear_attention_freq: 4\nlinear_conv_kernel_dim: 3\n"
        "linear_key_head_dim: 64\nlinear_value_head_dim: 32\nlinear_num_key_heads: 8\n"
        "linear_num_value_heads: 24\n");
    EXPECT_EQ(model.mixers, (std::vector<Mixer>{Mixer::gated_delta_net, Mixer::gated_delta_net, Mixer::gated_delta_net,
                                                Mixer::attention}));
    EXPECT_TRUE(model.feed_forward.empty());
    EXPECT_EQ(model.feed_forward_of(0), FeedForward::dense);
    EXPECT_EQ(model.linear_conv_kernel_dim, 3);
    EXPECT_EQ(model.linear_key_head_dim, 64);
    EXPECT_EQ(model.linear_value_head_dim, 32);
    EXPECT_EQ(model.linear_num_key_heads, 8);
    EXPECT_EQ(model.linear_num_value_heads, 24);
    EXPECT_EQ(read("experimental_attention_variant: gdn\nlinear_attention_freq: [0, 1, 0, 1]\n").mixers,
              (std::vector<Mixer>{Mixer::attention, Mixer::gated_delta_net, Mixer::attention, Mixer::gated_delta_net}));
    EXPECT_FALSE(read("experimental_attention_variant: null\n").is_hybrid());
}

TEST_F(ModelLanguage, ReadsHybridPatterns) {
    const types::Model model = read(
        "hybrid_layer_pattern: \"M*-E/*E\"\nnum_experts: 8\nmamba_state_dim: 64\nmamba_head_dim: 32\n"
        "mamba_num_groups: 4\n");
    EXPECT_EQ(model.mixers, (std::vector<Mixer>{Mixer::mamba, Mixer::attention, Mixer::none, Mixer::none}));
    EXPECT_EQ(model.feed_forward,
              (std::vector<FeedForward>{FeedForward::none, FeedForward::none, FeedForward::dense, FeedForward::moe}));
    EXPECT_EQ(model.mtp_num_layers, 1);
    EXPECT_EQ(model.mtp_mixers, (std::vector<Mixer>{Mixer::attention, Mixer::none}));
    EXPECT_EQ(model.mtp_feed_forward, (std::vector<FeedForward>{FeedForward::none, FeedForward::moe}));
    EXPECT_EQ(model.mamba_state_dim, 64);
    EXPECT_EQ(model.mamba_head_dim, 32);
    EXPECT_EQ(model.mamba_num_groups, 4);
    EXPECT_EQ(model.mamba_num_heads, 64);  // 2 x 1024 / 32
    EXPECT_EQ(read("hybrid_layer_pattern: \"M*M-\"\nmamba_num_heads: 24\n").mamba_num_heads, 24);
    EXPECT_FALSE(read("hybrid_layer_pattern: null\n").is_hybrid());
}

}  // namespace
}  // namespace stowage::reader::testing
