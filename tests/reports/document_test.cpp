#include "reports/document.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "reports/plan_json.hpp"
#include "scenarios/types/error.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::reports {
namespace {

using support::TemporaryFolder;
using support::write_text;

std::string problem_of(const std::filesystem::path& path) {
    try {
        read_document(path, kPlanSchema);
    } catch (const types::InputError& error) {
        return error.what();
    }
    return {};
}

/// A plan whose member `key` is that many lists, one inside the other.
std::string nested(const std::string& key, std::size_t levels) {
    return R"({"schema": "stowage/plan/1", ")" + key + "\": " + std::string(levels, '[') + std::string(levels, ']') +
           "}";
}

TEST(Document, ThatNestsWithoutEndIsRefused) {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder / "p.json";
    // A million levels overran the stack when the part was written again.
    for (const std::size_t levels : {std::size_t{65}, std::size_t{1'000'000}}) {
        write_text(path, nested("scenario", levels));
        EXPECT_EQ(problem_of(path), path.string() + ": error: found more than 64 levels of nesting");
    }
    write_text(path, nested("scenario", 60));
    EXPECT_EQ(problem_of(path), "");
}

TEST(Document, ThatCannotBeReadIsTheFilesFault) {
    // Opens, and fails at the first byte.
    EXPECT_EQ(problem_of("/proc/self/mem"), "/proc/self/mem: error: reading it failed: Input/output error");
    EXPECT_EQ(problem_of("/dev/zero"), "/dev/zero: error: is larger than 256 MiB, expected a file of stowage");
    EXPECT_EQ(problem_of("no-such-file.json"), "no-such-file.json: error: No such file or directory");
    EXPECT_EQ(problem_of("/"), "/: error: is a folder, expected a file");
}

TEST(Document, IsUtf8WhateverTheFilesAreCalled) {
    // A scenario is called as its file, and a file may be called anything.
    EXPECT_EQ(to_text(Json{{"a\xff", "b\xff"}}), "{\"a\xef\xbf\xbd\": \"b\xef\xbf\xbd\"}\n");
}

TEST(Document, IsNotSoughtInWhatIsNoFile) {
    const TemporaryFolder folder;
    const std::filesystem::path pipe = folder / "pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_FALSE(looks_like_json(pipe));  // and does not wait for somebody to write into it
    EXPECT_FALSE(looks_like_json(folder.path()));
    EXPECT_FALSE(looks_like_json(folder / "absent"));
}

}  // namespace
}  // namespace stowage::reports
