#include "profiler/injection/child_process.hpp"

#include <gtest/gtest.h>

#include "scenarios/types/error.hpp"

namespace stowage::profiler {
namespace {

Environment with(const std::string& name, const std::string& value) {
    Environment environment = current_environment();
    environment[name] = value;
    return environment;
}

TEST(ChildProcess, GivesBackWhatTheCommandExitedWith) {
    EXPECT_EQ(run({"sh", "-c", "exit 3"}, current_environment()), 3);
    EXPECT_EQ(run({"true"}, current_environment()), 0);
}

TEST(ChildProcess, GivesBackASignalAsShellsDo) {
    EXPECT_EQ(run({"sh", "-c", "kill -15 $$"}, current_environment()), 128 + 15);
}

TEST(ChildProcess, HandsOverTheEnvironmentAndArgumentsAsTheyAre) {
    EXPECT_EQ(run({"sh", "-c", R"([ "$COLOUR" = "a b" ] && [ "$1" = "c d" ])", "sh", "c d"}, with("COLOUR", "a b")), 0);
}

TEST(ChildProcess, SaysWhichCommandIsMissing) {
    try {
        static_cast<void>(run({"/nowhere/train"}, current_environment()));
        FAIL();
    } catch (const types::Error& error) {
        EXPECT_STREQ(error.what(), "'/nowhere/train' cannot be started: No such file or directory");
        EXPECT_EQ(error.code(), types::ExitCode::command_line);
    }
    EXPECT_THROW(run({}, current_environment()), types::Error);
}

TEST(OutputOf, IsWhatTheCommandWrites) {
    EXPECT_EQ(output_of({"sh", "-c", "echo one; echo two >&2; echo $COLOUR"}, with("COLOUR", "red")), "one\nred\n");
}

// More than a pipe holds (64 KiB).
TEST(OutputOf, MayBeLong) {
    EXPECT_EQ(output_of({"sh", "-c", "head -c 300000 /dev/zero"}, current_environment()).size(), 300000U);
}

TEST(OutputOf, IsNothingOfACommandThatFails) {
    EXPECT_EQ(output_of({"sh", "-c", "echo one; exit 1"}, current_environment()), "");
    EXPECT_EQ(output_of({"/nowhere/python"}, current_environment()), "");
}

}  // namespace
}  // namespace stowage::profiler
