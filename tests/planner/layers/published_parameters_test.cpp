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
    std::int64_t parameters;              ///< with the multi-token-prediction layer
    std::int64_t checkpoint;              ///< what the publisher's files count
    std::int64_t beside = 0;              ///< of that, what is no parameter here
    std::int64_t without_prediction = 0;  ///< parameters when that layer is left out; 0: there is none
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
    {"deepseek-v3", 682'636'472'320, 684'531'386'000, kDeepSeekCopies + kDeepSeekBias + kDeepSeekScales,
     671'026'404'352},
    {"kimi-k2", 1'026'408'209'408, 1'026'408'235'864, kKimiBias + kKimiUnknown},
    {"moonlight-16b-a3b", 15'960'108'544, 15'960'111'936, kMoonlightBias + kMoonlightUnknown},
    {"glm4.5-355b-a32b", 356'785'884'416, 358'337'791'296, kGlm45Copies + kGlm45Bias, 352'797'814'784},
    {"glm4.5-air-106b-a12b", 109'227'304'960, 110'468'824'832, kAirCopies + kAirBias, 106'852'245'504},
    {"glm5-744b-a40b", 753'123'739'136, 753'864'139'008, kGlm5Indexer + kGlm5Bias, 743'180'190'720},
    {"minimax-m2", 228'689'748'992, 228'689'764'864, kMiniMaxBias},
    {"mixtral-8x22b", 140'630'071'296, 140'630'071'296},
    {"gpt-oss-120b", 116'829'156'672, 116'829'156'672},
    {"gpt-oss-20b", 20'914'757'184, 20'914'757'184},
    {"llama2-70b", 68'976'648'192, 68'976'653'312, kLlama2Rotary},
    {"llama3-70b", 70'553'706'496, 70'553'706'496},
    {"llama3.1-405b", 405'853'388'800, 405'853'388'800},
    {"qwen3-30b-a3b", 30'532'122'624, 30'532'122'624},
    {"qwen3-235b-a22b", 235'093'634'560, 235'093'634'560},
    {"qwen3-next-80b-a3b", 81'324'862'720, 81'324'862'720, 0, 79'674'391'296},
    {"nemotron3-nano-30b-a3b", 31'577'937'344, 31'577'937'344},
    {"nemotron3-super-120b-a12b", 123'611'012'096, 123'611'012'096, 0, 120'668'687'360},
};

types::Scenario scenario_of(const std::string& file) {
    const auto path = std::filesystem::path(STOWAGE_SOURCE_DIR) / "scenarios" / "models" / (file + ".yaml");
    types::Scenario scenario = llama3_70b();
    scenario.model = reader::read_model(path);
    return scenario;
}

class PublishedParameters : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedParameters, AreThoseOfTheCheckpoint) {
    const Published& published = GetParam();
    const std::int64_t parameters = model_parameters(scenario_of(published.file));
    EXPECT_EQ(parameters, published.parameters);
    EXPECT_EQ(parameters + published.beside, published.checkpoint);
}

TEST_P(PublishedParameters, WithoutThePredictionLayerAreThoseOfTheModelAlone) {
    const Published& published = GetParam();
    if (published.without_prediction == 0) return;
    types::Scenario scenario = scenario_of(published.file);
    scenario.model.mtp_num_layers = 0;
    EXPECT_EQ(model_parameters(scenario), published.without_prediction);
}

INSTANTIATE_TEST_SUITE_P(Models, PublishedParameters, ::testing::ValuesIn(kPublished), [](const auto& instance) {
    std::string name = instance.param.file;
    for (char& letter : name)
        if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
    return name;
});

// The maker says 550 billion with 55 active: 48 Mamba, 48 expert and 12 attention layers of h = 8192.
//   Mamba    8192 * (2*16384 + 2*8*128 + 256) + 18432 * (4 + 1) + 3*256 + 16384 + 16384*8192 + norm 8192 = 421,645,056
//   experts  512*8192 + 512*2*2048*5120 + 2*8192*10240 + 2*8192*2048 + norm 8192 = 10,942,947,328
//   attention 8192 * (64 + 2*2) * 128 + 64*128*8192 + norm 8192 = 138,420,224
//   48 * both + 12 attention + 2*131072*8192 + 8192 = 549,308,968,960
TEST(UnpublishedParameters, OfNemotron3UltraAreWithinTheMakersRounding) {
    types::Scenario scenario = scenario_of("nemotron3-ultra-550b-a55b");
    EXPECT_EQ(model_parameters(scenario), 560'524'578'816);
    scenario.model.mtp_num_layers = 0;
    EXPECT_EQ(model_parameters(scenario), 549'308'968'960);
}

// Megatron's test models, by the formulas above. The first: attention 19,990,528, MoE 103,841,792 and three dense
// layers of 3*1024*4096 at h = 1024; the second the same attention at h = 512 (16,812,032); the third GELU, LayerNorm
// and 8 heads of 64.
TEST(UnpublishedParameters, OfMegatronsTestModels) {
    types::Scenario scenario = scenario_of("mcore-func-fgo-15l");
    EXPECT_EQ(model_parameters(scenario), 1'686'666'240 + 125'934'592);
    scenario.model.mtp_num_layers = 0;
    EXPECT_EQ(model_parameters(scenario), 1'686'666'240);
    EXPECT_EQ(model_parameters(scenario_of("mcore-func-attncg-16l")), 1'105'577'472);
    EXPECT_EQ(model_parameters(scenario_of("mcore-func-scg-13l")), 153'763'840 + 10'494'976);
}

}  // namespace
}  // namespace stowage::layers::testing
