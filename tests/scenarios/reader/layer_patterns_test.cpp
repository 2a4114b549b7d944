#include "scenarios/reader/layer_patterns.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace stowage::reader {
namespace {

using types::FeedForward;
using types::Mixer;
using Layers = std::vector<bool>;

Layers layers(const std::string& text) {
    auto result = evaluate_layer_list(text);
    if (const auto* bad = std::get_if<BadPattern>(&result)) {
        ADD_FAILURE() << text << ": " << bad->reason;
        return {};
    }
    return std::get<Layers>(result);
}

std::string fault(const std::string& text) {
    const auto result = evaluate_layer_list(text);
    const auto* bad = std::get_if<BadPattern>(&result);
    return bad != nullptr ? bad->reason : "none";
}

TEST(LayerList, EvaluatesSumsAndRepetitionsAsPythonDoes) {
    EXPECT_EQ(layers("[0, 1]"), (Layers{false, true}));
    EXPECT_EQ(layers("[0]*2+[1]*3"), (Layers{false, false, true, true, true}));
    EXPECT_EQ(layers("([0]+[1]*2)*2"), (Layers{false, true, true, false, true, true}));
    EXPECT_EQ(layers("2*[1]+[0]*0"), (Layers{true, true}));
    EXPECT_EQ(layers("[1]*2*2"), (Layers{true, true, true, true}));
    EXPECT_EQ(layers("[0,]+[]+[1]"), (Layers{false, true}));
    EXPECT_EQ(layers("([0]*3+[1]*58)").size(), 61U);
    EXPECT_EQ(layers(" ( ( [1 ] ) * 2 ) "), (Layers{true, true}));
}

TEST(LayerList, SaysWhatIsWrong) {
    EXPECT_EQ(fault("([0]*3"), "a '(' without its ')'");
    EXPECT_EQ(fault("[0]*3)"), "')' is not expected here");
    EXPECT_EQ(fault("[0]*"), "it ends too early");
    EXPECT_EQ(fault("[0]*[1]"), "'*' repeats a list by a number");
    EXPECT_EQ(fault("2*3*[1]"), "'*' repeats a list by a number");
    EXPECT_EQ(fault("[0]+1"), "'+' joins lists");
    EXPECT_EQ(fault("[0]-[1]"), "'-' is not expected here");
    EXPECT_EQ(fault("[0 1]"), "a '[' without its ']'");
    EXPECT_EQ(fault("[0]*1 0"), "'0' is not expected here");
    EXPECT_EQ(fault("[2]"), "a list holds 0 and 1 only");
    EXPECT_EQ(fault("[0"), "a '[' without its ']'");
    EXPECT_EQ(fault("3"), "a number, expected a list such as [0]*3+[1]*58");
    EXPECT_EQ(fault(""), "it ends too early");
    EXPECT_EQ(fault("__import__('os')[0]"), "'_' is not expected here");
}

TEST(LayerList, IsBounded) {
    EXPECT_EQ(fault("[0]*100001"), "more than 100000 layers");
    EXPECT_EQ(fault("[0]*100000+[1]"), "more than 100000 layers");
    EXPECT_EQ(fault("[0]*99999999999999999999"), "more than 100000 layers");
    EXPECT_EQ(fault("[]*99999999999999999999"), "none");
    EXPECT_EQ(fault(std::string(1000, '(') + "[0]"), "brackets inside brackets, too deep");
}

HybridPattern hybrid(const std::string& text) {
    auto result = parse_hybrid_pattern(text);
    if (const auto* bad = std::get_if<BadPattern>(&result)) {
        ADD_FAILURE() << text << ": " << bad->reason;
        return {};
    }
    return std::get<HybridPattern>(std::move(result));
}

TEST(HybridPattern, HasOneHalfLayerALetter) {
    const HybridPattern pattern = hybrid("MG*-E");
    EXPECT_EQ(pattern.mixers,
              (std::vector<Mixer>{Mixer::mamba, Mixer::gated_delta_net, Mixer::attention, Mixer::none, Mixer::none}));
    EXPECT_EQ(pattern.feed_forward, (std::vector<FeedForward>{FeedForward::none, FeedForward::none, FeedForward::none,
                                                              FeedForward::dense, FeedForward::moe}));
    EXPECT_EQ(pattern.stages, (std::vector<std::size_t>{5}));
    EXPECT_EQ(pattern.mtp_depths, 0U);
}

TEST(HybridPattern, HasStagesAndPredictionLayers) {
    const HybridPattern pattern = hybrid("M-M-|M-M*-/*E/*E");
    EXPECT_EQ(pattern.mixers.size(), 9U);
    EXPECT_EQ(pattern.stages, (std::vector<std::size_t>{4, 5}));
    EXPECT_EQ(pattern.mtp_depths, 2U);
    EXPECT_EQ(pattern.mtp_mixers, (std::vector<Mixer>{Mixer::attention, Mixer::none}));
    EXPECT_EQ(pattern.mtp_feed_forward, (std::vector<FeedForward>{FeedForward::none, FeedForward::moe}));
    EXPECT_EQ(hybrid("M*/").mtp_depths, 0U);
}

TEST(HybridPattern, OfNemotron3SuperHasItsLayers) {
    // 88 layers: 40 Mamba, 40 of experts, 8 of attention, as the published configuration counts them.
    const HybridPattern pattern =
        hybrid("MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME");
    const auto count = [&](Mixer mixer) { return std::count(pattern.mixers.begin(), pattern.mixers.end(), mixer); };
    EXPECT_EQ(pattern.mixers.size(), 88U);
    EXPECT_EQ(count(Mixer::mamba), 40);
    EXPECT_EQ(count(Mixer::attention), 8);
    EXPECT_EQ(count(Mixer::none), 40);
}

}  // namespace
}  // namespace stowage::reader
