#include "reports/output_file.hpp"

#include <gtest/gtest.h>

#include "scenarios/types/error.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::reports {
namespace {

using support::file_text;
using support::TemporaryFolder;

std::string message_of(const std::filesystem::path& path) {
    try {
        write_file(path, "text");
    } catch (const types::InputError& error) {
        return error.what();
    }
    return "no error";
}

TEST(OutputFile, IsThereWholeOnceItIsCommitted) {
    const TemporaryFolder folder;
    OutputFile file(folder / "plan.json");
    file.write("one ");
    file.write("two");
    EXPECT_FALSE(std::filesystem::exists(folder / "plan.json"));
    file.commit();
    EXPECT_EQ(file_text(folder / "plan.json"), "one two");
    EXPECT_EQ(folder.listing(), "plan.json\n");
}

TEST(OutputFile, LeavesWhatWasThereIfItIsNotCommitted) {
    const TemporaryFolder folder;
    write_file(folder / "plan.json", "old");
    {
        OutputFile file(folder / "plan.json");
        file.write("new");
    }
    EXPECT_EQ(file_text(folder / "plan.json"), "old");
    EXPECT_EQ(folder.listing(), "plan.json\n");
}

TEST(OutputFile, SaysThatTheFolderIsMissing) {
    const TemporaryFolder folder;
    const std::string path = (folder / "no/plan.json").string();
    EXPECT_EQ(message_of(path),
              path + ": error: creating it failed: No such file or directory\nhint: there is no folder '" +
                  (folder / "no").string() + "'; make it first");
}

TEST(OutputFile, RefusesAFolderAndADevice) {
    const TemporaryFolder folder;
    const std::string path = folder.path().string();
    EXPECT_EQ(message_of(path), path + ": error: writing it failed: Is a directory");
    EXPECT_EQ(message_of("/dev/null"), "/dev/null: error: is not a regular file, and is not replaced by one");
}

TEST(OutputFile, ReplacesWhatALinkPointsTo) {
    const TemporaryFolder folder;
    write_file(folder / "target.json", "old");
    std::filesystem::create_symlink(folder / "target.json", folder / "link.json");
    write_file(folder / "link.json", "new");
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.json"));
    EXPECT_EQ(file_text(folder / "target.json"), "new");
}

}  // namespace
}  // namespace stowage::reports
