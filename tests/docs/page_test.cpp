// Pages say what commands print; here they are run. With STOWAGE_UPDATE_GOLDEN set (`ninja update_docs`) the pages are
// written anew instead, and their difference is reviewed: the words around a number may have to change with it.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/docs/page.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::docs {
namespace {

const std::string kPage =
    "Words.\n\n    $ echo one\n    old\n\nMore: `x`.\n\n    $ true\n    $ printf 'a\\nb\\n'\n    a\n    b\n";

TEST(Page, IsReadAsCommandsAndTheirOutputs) {
    const std::vector<Example> examples = examples_of(kPage);
    ASSERT_EQ(examples.size(), 3U);
    EXPECT_EQ(examples[0].command, "echo one");
    EXPECT_EQ(examples[0].output, "old\n");
    EXPECT_EQ(examples[0].line, 3U);
    EXPECT_EQ(examples[1].output, "");
    EXPECT_EQ(examples[2].command, "printf 'a\\nb\\n'");
    EXPECT_EQ(examples[2].output, "a\nb\n");
}

TEST(Page, TakesWhatItsCommandsPrint) {
    std::string expected = kPage;
    expected.replace(expected.find("old"), 3, "one");
    EXPECT_EQ(with_outputs(kPage, run(examples_of(kPage))), expected);
    EXPECT_THROW(run(examples_of("    $ false\n")), std::runtime_error);
}

/// The page says what its commands print, or is written anew.
void hold_against_commands(const std::filesystem::path& path) {
    const std::string page = support::file_text(path);
    const std::vector<Example> said = examples_of(page);
    ASSERT_GT(said.size(), 0U);
    const std::vector<Example> printed = run(said);
    if (std::getenv("STOWAGE_UPDATE_GOLDEN") != nullptr) {
        support::write_text(path, with_outputs(page, printed));
        return;
    }
    for (std::size_t i = 0; i < said.size(); ++i)
        EXPECT_EQ(said[i].output, printed[i].output) << path.string() << ":" << said[i].line << ": " << said[i].command;
}

TEST(Page, OnGraphsSaysWhatItsCommandsPrint) { hold_against_commands(STOWAGE_SOURCE_DIR "/docs/graphs.md"); }

TEST(Page, OnMemorySaysWhatItsCommandsPrint) { hold_against_commands(STOWAGE_SOURCE_DIR "/docs/memory.md"); }

}  // namespace
}  // namespace stowage::docs
