// Commands and their exact output. Simulated times, so the same on every machine. When a change is wanted,
// `ninja update_golden` writes the files anew; their difference is reviewed as code.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/cli/command.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {
namespace {

void expect_golden(const std::string& name, const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(STOWAGE_SOURCE_DIR "/tests/cli/golden") / name;
    if (std::getenv("STOWAGE_UPDATE_GOLDEN") != nullptr) support::write_text(path, text);
    EXPECT_EQ(text, support::file_text(path)) << "in tests/cli/golden/" << name << "; 'update_golden' writes it anew";
}

std::size_t longest_line(const std::string& text) {
    std::size_t longest = 0;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        longest = std::max(longest, end - begin);
        begin = end + 1;
    }
    return longest;
}

void expect_golden_text(const std::string& name, const std::string& arguments, int code) {
    const CommandResult result = stowage(arguments);
    EXPECT_EQ(result.code, code) << result.error;
    EXPECT_EQ(result.error, "");
    if (name.ends_with(".txt")) {
        EXPECT_LE(longest_line(result.out), 100U);
    }
    expect_golden(name, result.out);
}

TEST(Golden, SummaryOfAPlanThatOffloads) {
    expect_golden_text("plan.txt", "plan " + kSmall + " --device-memory 3.2GiB", 0);
}

TEST(Golden, SummaryWhenItFits) { expect_golden_text("fits.txt", "plan " + kSmall, 0); }

TEST(Golden, SummaryWhenNothingFits) {
    expect_golden_text("infeasible.txt", "plan " + kSmall + " --device-memory 2GiB", 4);
}

TEST(Golden, SummaryOfAPlanWithGraphs) {
    expect_golden_text("graphs.txt", "plan tests/data/small_graphs.yaml --device-memory 3.6GiB", 0);
}

TEST(Golden, SimulationWithGraphs) {
    expect_golden_text("graphs_simulated.json", "simulate --quiet --json tests/data/small_graphs.yaml", 0);
}

TEST(Golden, PlanAsJson) { expect_golden_text("plan.json", "plan --json " + kSmall + " --device-memory 3.2GiB", 0); }

}  // namespace
}  // namespace stowage::cli
