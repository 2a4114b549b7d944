#include "planner/rules/rule_pages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "planner/rules/legality.hpp"

namespace stowage::rules {
namespace {

TEST(RulePages, HaveWordsForEveryRule) {
    for (const Rule& rule : rules()) EXPECT_NO_THROW(EXPECT_NE(condition_of(rule), "")) << rule.id;
    EXPECT_EQ(rule_pages().size(), rules().size() + argument_pages().size());
    for (const RulePage& page : rule_pages()) {
        EXPECT_EQ(page.condition.back(), '.') << page.id;
        EXPECT_NE(page.reason, "") << page.id;
        EXPECT_NE(page.source, "") << page.id;
        EXPECT_TRUE(page.severity == Severity::note || !page.nearest_legal.empty()) << page.id;
    }
}

// O12 is about all modules where core-0.19 and main refuse, and about norms in dev.
TEST(RulePages, TellEntriesOfOneIdApart) {
    const std::vector<RulePage> pages = pages_of("O12");
    ASSERT_EQ(pages.size(), 2U);
    EXPECT_TRUE(pages[0].sets.contains(types::RuleSet::main_2026_08));
    EXPECT_EQ(pages[0].condition, "Something is offloaded and recompute_modules has mhc.");
    EXPECT_TRUE(pages[1].sets.contains(types::RuleSet::dev));
    EXPECT_EQ(pages[1].condition, "offload_modules has attn_norm or mlp_norm, and recompute_modules has mhc.");
}

TEST(RulePages, AreFoundByIdInEitherCase) {
    ASSERT_EQ(pages_of("x5").size(), 1U);
    EXPECT_EQ(pages_of("x5")[0].id, "X5");
    EXPECT_TRUE(pages_of("X").empty());
    EXPECT_TRUE(pages_of("X55").empty());
}

// Ids as the reader's source has them: a letter of a family and a number, in quotes.
TEST(RulePages, CoverEveryIdThatArgumentsAreJudgedBy) {
    std::set<std::string> ids;
    const std::regex id("\"([DEGHORX][0-9]+)\"");
    for (const auto& entry : std::filesystem::directory_iterator(STOWAGE_SOURCE_DIR "/scenarios/reader")) {
        std::ifstream file(entry.path());
        const std::string text(std::istreambuf_iterator<char>(file), {});
        for (std::sregex_iterator match(text.begin(), text.end(), id), end; match != end; ++match)
            ids.insert((*match)[1]);
    }
    EXPECT_TRUE(ids.contains("O1"));
    for (const std::string& one : ids) EXPECT_FALSE(pages_of(one).empty()) << one;
}

}  // namespace
}  // namespace stowage::rules
