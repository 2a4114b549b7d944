// The parameters of every shipped model against what its publisher's checkpoint counts (total of the safetensors files
// on Hugging Face), to the digit. A checkpoint also holds numbers that Megatron does not train or keeps once: they are
// listed beside the model, with where they come from, so that both sides must agree. docs/models.md has the table.
//
// By hand for DeepSeek-V3, h = 7168:
//   attention  7168*1536 + 1536 + 1536*128*192 + 7168*(512+64) + 512 + 512*128*256 + 128*128*7168 = 187,107,328
//   MoE        256*7168 + 256*3*7168*2048 + 3*7168*2048 = 11,320,164,352;  dense MLP 3*7168*18432 = 396,361,728
//   61 (attention + 2 h) + 58 MoE + 3 dense + 2*129280*h + h = 671,026,404,352
//   multi-token prediction: attention + 2 h + MoE + 2 h^2 + 3 h = 11,610,067,968

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <ostream>
#include <string>

#include "planner/layers/inventory.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

struct Published {
    const char* file;
    std::int64_t model;       ///< without the multi-token-prediction layer
    std::int64_t prediction;  ///< that layer's own
    std::int64_t checkpoint;  ///< what the publisher's files count
    std::int64_t beside = 0;  ///< of that, what is no parameter here
};

void PrintTo(const Published& published, std::ostream* out) { *out << published.file; }

constexpr std::int64_t kDeepSeekCopies = 2LL * 129280 * 7168;  // embedding and output again, in the prediction layer
constexpr std::int64_t kDeepSeekBias = 59LL * 256;             // expert bias: a buffer
constexpr std::int64_t kDeepSeekScales = 41'540'496;           // one a block of 128 x 128 FP8 weights
constexpr std::int64_t kKimiBias = 60LL * 384;                 //
constexpr std::int64_t kKimiUnknown = 61LL * 56;               // 56 numbers a layer, not explained
constexpr std::int64_t kMoonlightBias = 26LL * 64;             //
constexpr std::int64_t kMoonlightUnknown = 27LL * 64;          // 64 numbers a layer, not explained
constexpr std::int64_t kGlm45Copies = 2LL * 151552 * 5120;     // as DeepSeek-V3
constexpr std::int64_t kGlm45Bias = 90LL * 160;                //
constexpr std::int64_t kAirCopies = 2LL * 151552 * 4096;       //
constexpr std::int64_t kAirBias = 46LL * 128;                  //
constexpr std::int64_t kMiniMaxBias = 62LL * 256;              //
constexpr std::int64_t kLlama2Rotary = 80LL * 64;              // tables of the rotary embedding
// GLM-5's indexer: queries 2048 * 32*128, keys 6144 * 128, their norm 2*128, weights of the 32 heads 6144 * 32.
constexpr std::int64_t kGlm5Indexer = 79 * (2048LL * 32 * 128 + 6144 * 128 + 2 * 128 + 6144 * 32);
constexpr std::int64_t kGlm5Bias = 76LL * 256;

constexpr Published kPublished[] = {
    {"deepseek-v3", 671'026'404'352, 11'610'067'968, 684'531'386'000,
     kDeepSeekCopies + kDeepSeekBias + kDeepSeekScales},
    {"kimi-k2", 1'026'408'209'408, 0, 1'026'408'235'864, kKimiBias + kKimiUnknown},
    {"moonlight-16b-a3b", 15'960'108'544, 0, 15'960'111'936, kMoonlightBias + kMoonlightUnknown},
    {"glm4.5-355b-a32b", 352'797'814'784, 3'988'069'632, 358'337'791'296, kGlm45Copies + kGlm45Bias},
    {"glm4.5-air-106b-a12b", 106'852'245'504, 2'375'059'456, 110'468'824'832, kAirCopies + kAirBias},
    {"glm5-744b-a40b", 743'180'190'720, 9'943'548'416, 753'864'139'008, kGlm5Indexer + kGlm5Bias},
    {"minimax-m2", 228'689'748'992, 0, 228'689'764'864, kMiniMaxBias},
    {"mixtral-8x22b", 140'630'071'296, 0, 140'630'071'296},
    {"gpt-oss-120b", 116'829'156'672, 0, 116'829'156'672},
    {"gpt-oss-20b", 20'914'757'184, 0, 20'914'757'184},
    {"llama2-70b", 68'976'648'192, 0, 68'976'653'312, kLlama2Rotary},
    {"llama3-70b", 70'553'706'496, 0, 70'553'706'496},
    {"llama3.1-405b", 405'853'388'800, 0, 405'853'388'800},
    {"qwen3-30b-a3b", 30'532'122'624, 0, 30'532'122'624},
    {"qwen3-235b-a22b", 235'093'634'560, 0, 235'093'634'560},
};

// Models with Mamba or linear-attention layers: the layers and, beside them, the formulas of `hybrid_parameters` are
// held against the checkpoint.
constexpr Published kHybrid[] = {
    {"qwen3-next-80b-a3b", 79'674'391'296, 1'650'471'424, 81'324'862'720},
    {"nemotron3-nano-30b-a3b", 31'577'937'344, 0, 31'577'937'344},
    {"nemotron3-super-120b-a12b", 120'668'687'360, 2'942'324'736, 123'611'012'096},
    {"nemotron3-ultra-550b-a55b", 549'308'968'960, 11'215'609'856, 560'524'578'816},  // published: 550 billion
};

types::Scenario scenario_of(const std::string& file) {
    const auto path = std::filesystem::path(STOWAGE_SOURCE_DIR) / "scenarios" / "models" / (file + ".yaml");
    types::Scenario scenario = llama3_70b();
    scenario.model = reader::read_model(path);
    return scenario;
}

std::int64_t parameters_of(const types::Model& model, types::Mixer mixer) {
    const std::int64_t hidden = model.hidden_size;
    switch (mixer) {
        case types::Mixer::none: return 0;
        case types::Mixer::attention: {
            const std::int64_t query = model.num_attention_heads * model.kv_channels;
            const std::int64_t inputs =
                (model.attention_output_gate ? 2 : 1) * query + 2 * model.num_query_groups * model.kv_channels;
            return hidden * (inputs + query) + (model.qk_layernorm ? 2 * model.kv_channels : 0) + hidden;
        }
        case types::Mixer::mamba: {
            const std::int64_t inner = model.mamba_num_heads * model.mamba_head_dim;
            const std::int64_t convolved = inner + 2 * model.mamba_num_groups * model.mamba_state_dim;
            // In: gate, convolved and a step a head. Four taps and a bias; step bias, A and D a head; norm; out; norm.
            return hidden * (inner + convolved + model.mamba_num_heads) + 5 * convolved + 3 * model.mamba_num_heads +
                   inner + inner * hidden + hidden;
        }
        case types::Mixer::gated_delta_net: {
            const std::int64_t key = model.linear_num_key_heads * model.linear_key_head_dim;
            const std::int64_t value = model.linear_num_value_heads * model.linear_value_head_dim;
            // In: q, k, v, gate, and two numbers a value head. Taps over q, k, v; bias and A a head; norm; out; norm.
            return hidden * (2 * key + 2 * value + 2 * model.linear_num_value_heads) +
                   model.linear_conv_kernel_dim * (2 * key + value) + 2 * model.linear_num_value_heads +
                   model.linear_value_head_dim + value * hidden + hidden;
        }
    }
    return 0;
}

std::int64_t parameters_of(const types::Model& model, types::FeedForward feed_forward) {
    if (feed_forward != types::FeedForward::moe) return 0;  // none of these models has a dense MLP
    const std::int64_t hidden = model.hidden_size;
    const std::int64_t matrices = model.gated() ? 3 : 2;
    const std::int64_t width = model.moe_latent_size > 0 ? model.moe_latent_size : hidden;
    return model.num_experts * (hidden + matrices * width * model.moe_ffn_hidden_size) +
           matrices * hidden * model.moe_shared_expert_intermediate_size + 2 * hidden * model.moe_latent_size +
           (model.moe_shared_expert_gate ? hidden : 0) + hidden;
}

/// By hand, norms before each half included. Megatron's prediction layer: two norms and a projection of both inputs to
/// one width, layers as given (or as the last one), a norm.
std::int64_t hybrid_parameters(const types::Model& model, bool prediction) {
    const std::int64_t hidden = model.hidden_size;
    if (prediction) {
        std::int64_t total = 2 * hidden * hidden + 3 * hidden;
        if (model.mtp_mixers.empty())
            return total + parameters_of(model, model.mixers.back()) + parameters_of(model, types::FeedForward::moe);
        for (const types::Mixer mixer : model.mtp_mixers) total += parameters_of(model, mixer);
        for (const types::FeedForward half : model.mtp_feed_forward) total += parameters_of(model, half);
        return total;
    }
    std::int64_t total = 2 * model.vocab_size * hidden + hidden;
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
        total += parameters_of(model, model.mixer_of(layer)) + parameters_of(model, model.feed_forward_of(layer));
    return total;
}

class PublishedParameters : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedParameters, AreThoseOfTheCheckpoint) {
    const Published& published = GetParam();
    const types::Scenario scenario = scenario_of(published.file);
    EXPECT_EQ(model_parameters(scenario), published.model);
    EXPECT_EQ(mtp_parameters(scenario), published.prediction);
    EXPECT_EQ(model_parameters(scenario) + mtp_parameters(scenario) + published.beside, published.checkpoint);
}

class HybridParameters : public ::testing::TestWithParam<Published> {};

TEST_P(HybridParameters, AreThoseOfTheCheckpoint) {
    const Published& published = GetParam();
    const types::Scenario scenario = scenario_of(published.file);
    const types::Model& model = scenario.model;
    EXPECT_EQ(model_parameters(scenario), published.model);
    EXPECT_EQ(mtp_parameters(scenario), published.prediction);
    EXPECT_EQ(hybrid_parameters(model, false), published.model);
    if (published.prediction > 0) {
        EXPECT_EQ(hybrid_parameters(model, true), published.prediction);
    }
    EXPECT_EQ(published.model + published.prediction, published.checkpoint);
}

std::string test_name(const ::testing::TestParamInfo<Published>& instance) {
    std::string name = instance.param.file;
    for (char& letter : name)
        if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
    return name;
}
INSTANTIATE_TEST_SUITE_P(Models, PublishedParameters, ::testing::ValuesIn(kPublished), test_name);
INSTANTIATE_TEST_SUITE_P(Models, HybridParameters, ::testing::ValuesIn(kHybrid), test_name);

// Megatron's test models, by the formulas above. The first: attention 19,990,528, MoE 103,841,792 and three dense
// layers of 3*1024*4096 at h = 1024; the second the same attention at h = 512 (16,812,032); the third GELU, LayerNorm
// and 8 heads of 64.
TEST(UnpublishedParameters, OfMegatronsTestModels) {
    const types::Scenario offloaded = scenario_of("mcore-func-fgo-15l");
    EXPECT_EQ(model_parameters(offloaded), 1'686'666'240);
    EXPECT_EQ(mtp_parameters(offloaded), 125'934'592);
    EXPECT_EQ(model_parameters(scenario_of("mcore-func-attncg-16l")), 1'105'577'472);
    const types::Scenario captured = scenario_of("mcore-func-scg-13l");
    EXPECT_EQ(model_parameters(captured), 153'763'840);
    EXPECT_EQ(mtp_parameters(captured), 10'494'976);
}

}  // namespace
}  // namespace stowage::layers::testing
