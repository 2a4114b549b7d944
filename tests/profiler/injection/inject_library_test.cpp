// libstowage_inject.so in processes of its own, as the driver opens it but without a driver or its CUPTI: it finds that
// nothing can be recorded, says so, and lets the process be. With a device, injection_gpu_test.cpp goes further.

#include <gtest/gtest.h>

#include "profiler/injection/run_injected.hpp"

namespace stowage::profiler {
namespace {

InjectionRequest request(const std::string& how) {
    InjectionRequest made;
    made.command = {STOWAGE_INJECTION_PROBE, how};
    made.injected_library = STOWAGE_INJECT_LIBRARY;
    made.cupti = "/nowhere/libcupti.so.13";
    return made;
}

TEST(InjectLibrary, LetsTheProcessGoOnAndSaysWhyItIsNotRecorded) {
    const InjectedRun run = run_injected(request("exit"));
    EXPECT_EQ(run.exit_status, 4);
    ASSERT_EQ(run.processes.size(), 1U);
    EXPECT_TRUE(run.processes[0].finished);
    EXPECT_EQ(run.processes[0].command, std::string(STOWAGE_INJECTION_PROBE) + " exit");
    EXPECT_EQ(run.processes[0].cupti, "/nowhere/libcupti.so.13");
    const std::string& failure = run.processes[0].failure;  // which is said depends on whether there is a driver here
    EXPECT_TRUE(failure.starts_with("/nowhere/libcupti.so.13 cannot be opened as CUPTI (/now") ||
                failure == "libcuda.so.1 cannot be opened: there is no NVIDIA driver here, and nothing to record")
        << failure;
    ASSERT_EQ(run.notes.size(), 1U);
    EXPECT_EQ(run.notes[0], "process " + std::to_string(run.processes[0].process) + ": " + run.processes[0].failure);
}

TEST(InjectLibrary, WritesOneFileThoughAChildRunsTheSameEnd) {
    const InjectedRun run = run_injected(request("fork"));
    EXPECT_EQ(run.exit_status, 4);
    ASSERT_EQ(run.processes.size(), 1U);
    EXPECT_TRUE(run.processes[0].finished);
}

TEST(InjectLibrary, IsThereOnce) {
    const InjectedRun run = run_injected(request("twice"));
    EXPECT_EQ(run.exit_status, 4);
    EXPECT_EQ(run.processes.size(), 1U);
}

TEST(InjectLibrary, LeavesAFileThatSaysThatTheProcessWasEnded) {
    const InjectedRun run = run_injected(request("kill"));
    EXPECT_EQ(run.exit_status, 128 + 9);
    ASSERT_EQ(run.processes.size(), 1U);
    EXPECT_FALSE(run.processes[0].finished);
    ASSERT_EQ(run.notes.size(), 1U);
    EXPECT_NE(run.notes[0].find("it was ended before it could write what was recorded: by a signal, or by _exit"),
              std::string::npos);
}

TEST(InjectLibrary, RefusesSettingsThatItCannotRead) {
    InjectionRequest made = request("exit");
    made.command = {"/bin/sh", "-c", std::string("STOWAGE_INJECT_AFTER_MS=soon ") + STOWAGE_INJECTION_PROBE};
    const InjectedRun run = run_injected(made);
    EXPECT_EQ(run.exit_status, 4);
    EXPECT_TRUE(run.processes.empty());
}

// CUPTI itself is there where the toolkit is, but not the driver that it needs: whatever it says, the process goes on.
TEST(InjectLibrary, SurvivesACuptiWithoutADriver) {
    InjectionRequest made = request("exit");
    made.cupti.clear();
    const InjectedRun run = run_injected(made);
    EXPECT_EQ(run.exit_status, 4);
    ASSERT_EQ(run.processes.size(), 1U);
    EXPECT_TRUE(run.processes[0].finished);
}

}  // namespace
}  // namespace stowage::profiler
