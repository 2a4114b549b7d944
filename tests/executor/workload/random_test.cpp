#include "executor/workload/random.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace stowage::executor {
namespace {

// The first outputs of SplitMix64 from state 0, as its authors' reference program prints them: the state grows by the
// golden gamma before each, so output n is the mixed n gamma.
TEST(RandomWord, IsSplitMix64) {
    EXPECT_EQ(random_word(0, 1), 0xe220a8397b1dcdafULL);
    EXPECT_EQ(random_word(0, 2), 0x6e789e6aa1b965f4ULL);
    EXPECT_EQ(random_word(0, 3), 0x06c45d188009454fULL);
}

TEST(StreamKey, DiffersBySeedStepAndMicrobatch) {
    const std::uint64_t key = stream_key(1, 2, 3);
    EXPECT_EQ(stream_key(1, 2, 3), key);
    EXPECT_NE(stream_key(2, 2, 3), key);
    EXPECT_NE(stream_key(1, 3, 3), key);
    EXPECT_NE(stream_key(1, 2, 4), key);
    EXPECT_NE(stream_key(2, 1, 3), key) << "seed and step are not interchangeable";
    EXPECT_NE(stream_key(1, 3, 2), key) << "nor are step and microbatch";
}

// 100,000 draws of 100 tokens: 1000 each on average, standard deviation 31.5; six of them are 189.
TEST(RandomToken, IsUniformBelowTheVocabulary) {
    std::vector<int> counts(100, 0);
    const std::uint64_t key = stream_key(5, 0, 0);
    for (std::uint64_t i = 0; i < 100000; ++i) ++counts.at(static_cast<std::size_t>(random_token(key, i, 100)));
    for (const int count : counts) EXPECT_NEAR(count, 1000, 189);
}

// A mean over n independent numbers of variance 1 has standard deviation 1/sqrt(n) = 0.0032; the variance's is
// sqrt((9/5 - 1) / n) = 0.0028, the fourth moment of a uniform one being 9/5.
TEST(RandomHidden, HasMeanZeroAndVarianceOne) {
    const std::uint64_t key = stream_key(5, 0, 0);
    const int count = 100000;
    double sum = 0;
    double squares = 0;
    for (int i = 0; i < count; ++i) {
        const double value = random_hidden(key, static_cast<std::uint64_t>(i));
        ASSERT_LT(std::abs(value), 1.7320509);
        sum += value;
        squares += value * value;
    }
    EXPECT_NEAR(sum / count, 0, 0.02);
    EXPECT_NEAR(squares / count, 1, 0.017);
}

TEST(RandomHidden, SplitsAWordIntoFourLanes) {
    constexpr float kStep = 1.7320508F / 32768.0F;
    const std::uint64_t word = 0xffff'8000'7fff'0000ULL;  // lanes from the low end: 0, 32767, 32768, 65535
    EXPECT_FLOAT_EQ(hidden_of_word(word, 0), -32767.5F * kStep);
    EXPECT_FLOAT_EQ(hidden_of_word(word, 1), -0.5F * kStep);
    EXPECT_FLOAT_EQ(hidden_of_word(word, 2), 0.5F * kStep);
    EXPECT_FLOAT_EQ(hidden_of_word(word, 3), 32767.5F * kStep);
}

TEST(HashOfWord, DependsOnWordAndPlace) {
    EXPECT_NE(hash_of_word(0, 0), hash_of_word(0, 1));
    EXPECT_NE(hash_of_word(0, 0), hash_of_word(1, 0));
    EXPECT_NE(hash_of_word(1, 2) + hash_of_word(2, 1), hash_of_word(1, 1) + hash_of_word(2, 2))
        << "two words that change places change the sum";
}

}  // namespace
}  // namespace stowage::executor
