// The launcher, with shell commands that leave what an injected process would leave.

#include "profiler/injection/run_injected.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "profiler/cupti/cupti_error.hpp"

namespace stowage::profiler {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class RunInjected : public testing::Test {
protected:
    void SetUp() override {
        const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
        folder_ =
            fs::temp_directory_path() / ("run_injected_" + std::string(test->name()) + "_" + std::to_string(getpid()));
        fs::create_directories(folder_);
        std::ofstream(library()) << "";
    }
    void TearDown() override { fs::remove_all(folder_); }

    [[nodiscard]] fs::path library() const { return folder_ / "libstowage_inject.so"; }

    [[nodiscard]] InjectionRequest shell(const std::string& script) const {
        InjectionRequest request;
        request.command = {"sh", "-c", script};
        request.injected_library = library();
        request.cupti = "/somewhere/libcupti.so.13";
        return request;
    }

    /// What a process with that many activities leaves; returns where it lies.
    fs::path left_by(std::uint32_t number, std::size_t activities, bool finished = true) {
        InjectedProcess process;
        process.process = number;
        process.finished = finished;
        process.recording.activities.resize(activities);
        process.recording.buffers = 1;
        const fs::path path = folder_ / ("prepared." + std::to_string(number));
        write_raw(path, process);
        return path;
    }

    static std::string failure_of(const InjectionRequest& request) {
        try {
            static_cast<void>(run_injected(request));
        } catch (const CuptiError& error) {
            return error.what();
        }
        return "";
    }

    fs::path folder_;
};

TEST_F(RunInjected, TellsTheCommandWhatToLoadAndWhereToWrite) {
    InjectionRequest request = shell(R"([ "$CUDA_INJECTION64_PATH" = )" + library().string() +
                                     R"( ] && [ "$NVTX_INJECTION64_PATH" = /somewhere/libcupti.so.13 ] &&
                                     [ -n "$STOWAGE_INJECT_OUT" ] && [ "$STOWAGE_INJECT_START_MARK" = "step 3" ] &&
                                     [ "$COLOUR" = red ])");
    request.settings.start_mark = "step 3";
    request.environment["COLOUR"] = "red";
    EXPECT_EQ(run_injected(request).exit_status, 0);
}

TEST_F(RunInjected, ReadsBackWhatAProcessLeft) {
    const fs::path left = left_by(7, 3);
    const InjectedRun run = run_injected(shell("cp " + left.string() + " $STOWAGE_INJECT_OUT.7; exit 5"));
    EXPECT_EQ(run.exit_status, 5);
    ASSERT_EQ(run.processes.size(), 1U);
    EXPECT_EQ(run.processes[0].process, 7U);
    EXPECT_EQ(run.recording().activities.size(), 3U);
    EXPECT_TRUE(run.notes.empty());
}

TEST_F(RunInjected, PutsTheBusiestProcessFirst) {
    const std::string copies = "cp " + left_by(5, 1).string() + " $STOWAGE_INJECT_OUT.5; cp " + left_by(6, 9).string() +
                               " $STOWAGE_INJECT_OUT.6; cp " + left_by(7, 4).string() + " $STOWAGE_INJECT_OUT.7";
    const InjectedRun run = run_injected(shell(copies));
    ASSERT_EQ(run.processes.size(), 3U);
    EXPECT_EQ(run.processes[0].process, 6U);
    EXPECT_EQ(run.processes[1].process, 7U);
    EXPECT_EQ(run.processes[2].process, 5U);
}

TEST_F(RunInjected, SaysThatNothingWasRecorded) {
    const InjectedRun run = run_injected(shell("exit 0"));
    EXPECT_EQ(run.notes,
              std::vector<std::string>{"nothing was recorded: no process of the command initialised CUDA, or the "
                                       "driver could not load " +
                                       library().string()});
    EXPECT_TRUE(run.recording().activities.empty());
}

TEST_F(RunInjected, SaysThatAProcessWasEnded) {
    const fs::path left = left_by(7, 0, false);
    const InjectedRun run = run_injected(
        shell("cp " + left.string() + " $STOWAGE_INJECT_OUT.7; touch $STOWAGE_INJECT_OUT.7.partial.7; kill -9 $$"));
    EXPECT_EQ(run.exit_status, 128 + 9);
    ASSERT_EQ(run.notes.size(), 1U);
    EXPECT_EQ(run.notes[0],
              "process 7: it was ended before it could write what was recorded: by a signal, or by _exit");
}

TEST_F(RunInjected, LeavesNoFilesBehind) {
    const fs::path left = left_by(7, 3);
    InjectionRequest request =
        shell("echo $STOWAGE_INJECT_OUT > $WHERE; cp " + left.string() + " $STOWAGE_INJECT_OUT.7");
    request.environment["WHERE"] = (folder_ / "where").string();
    static_cast<void>(run_injected(request));
    std::string out;
    std::getline(std::ifstream(folder_ / "where") >> std::ws, out);
    ASSERT_FALSE(out.empty());
    EXPECT_FALSE(fs::exists(fs::path(out).parent_path()));
}

TEST_F(RunInjected, DoesNotTakeTheCommandFromAnotherTool) {
    InjectionRequest request = shell("exit 0");
    request.environment["CUDA_INJECTION64_PATH"] = "/opt/nsight/libToolsInjection64.so";
    EXPECT_EQ(failure_of(request),
              "CUDA_INJECTION64_PATH is already set, to /opt/nsight/libToolsInjection64.so: another tool records this "
              "command, and CUPTI serves one at a time; run it without");
}

TEST_F(RunInjected, SaysWhereTheLibraryWasLookedFor) {
    InjectionRequest request = shell("exit 0");
    request.injected_library.clear();
    request.environment["STOWAGE_INJECT_LIBRARY"] = "/nowhere/x.so";
    EXPECT_EQ(failure_of(request), "STOWAGE_INJECT_LIBRARY names no file: /nowhere/x.so");
    request.environment["STOWAGE_INJECT_LIBRARY"] = "";
    EXPECT_NE(failure_of(request).find("there is no libstowage_inject.so; looked for "), std::string::npos);
    request.environment["STOWAGE_INJECT_LIBRARY"] = library().string();
    EXPECT_EQ(failure_of(request), "");
}

}  // namespace
}  // namespace stowage::profiler
