// A program of ours, recorded from within on a device. What was recorded is printed.

#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <map>

#include "profiler/cupti/range_marks.hpp"
#include "profiler/injection/run_injected.hpp"
#include "tests/support/gpu_test.hpp"

namespace stowage::profiler {
namespace {

namespace fs = std::filesystem;

/// Where everything of a build was copied into one folder, beside this program.
fs::path beside_or(const char* built) {
    std::error_code failed;
    const fs::path here = fs::read_symlink("/proc/self/exe", failed).parent_path() / fs::path(built).filename();
    return fs::exists(here, failed) ? here : fs::path(built);
}

class InjectionOnDevice : public support::GpuTest {
protected:
    static InjectionRequest request(const std::string& how) {
        InjectionRequest made;
        made.command = {beside_or(STOWAGE_INJECTED_PROGRAM).string(), how};
        made.injected_library = beside_or(STOWAGE_INJECT_LIBRARY);
        return made;
    }

    static InjectedRun run_and_print(const InjectionRequest& made) {
        InjectedRun run = run_injected(made);
        std::cout << made.command.at(1) << ": exit status " << run.exit_status << "\n";
        for (const std::string& note : run.notes) std::cout << "  note: " << note << "\n";
        for (const InjectedProcess& process : run.processes) {
            const Recording& recording = process.recording;
            std::cout << "  process " << process.process << " with " << process.cupti << " " << process.cupti_version
                      << ": " << recording.activities.size() << " activities, " << recording.calls.size() << " calls, "
                      << recording.ranges.size() << " ranges, " << recording.marks.size() << " marks, "
                      << recording.nodes.size() << " nodes, " << recording.waits.size() << " waits, "
                      << recording.allocations.size() << " allocations, " << recording.buffers << " buffers, "
                      << recording.missing_buffers << " missing\n";
            for (const UsedDevice& device : process.devices)
                std::cout << "    on " << device.name << ", " << device.multiprocessors << " multiprocessors, "
                          << device.memory.count << " B, CUDA " << device.driver << "\n";
        }
        return run;
    }

    static std::size_t kernels(const Recording& recording) {
        std::size_t count = 0;
        for (const Activity& activity : recording.activities)
            if (activity.kind == ActivityKind::kernel) ++count;
        return count;
    }
};

TEST_F(InjectionOnDevice, RecordsKernelsGraphsAndRanges) {
    const InjectedRun run = run_and_print(request("plain"));
    EXPECT_EQ(run.exit_status, 3);
    EXPECT_TRUE(run.notes.empty());
    EXPECT_EQ(kernels(run.recording()), 100U + 50U);
    EXPECT_EQ(run.recording().dropped, 0U);
    ASSERT_EQ(run.processes.at(0).devices.size(), 1U);
    EXPECT_GT(run.processes[0].devices[0].multiprocessors, 0);
    const std::vector<RawStep> steps = steps_by_ranges(run.recording());
    ASSERT_EQ(steps.size(), 1U);
    std::map<std::string, int> modules;
    for (const Activity& activity : steps[0].activities.activities) {
        const auto node = steps[0].activities.node_operations.find(activity.graph_node);
        const OperationNumber number =
            node == steps[0].activities.node_operations.end() ? activity.issued_under : node->second;
        const auto mark = steps[0].marks.find(number);
        ++modules[mark == steps[0].marks.end() ? "none" : mark->second.module];
    }
    EXPECT_EQ(modules, (std::map<std::string, int>{{"core_attn", 100}, {"mlp", 50}}));
}

TEST_F(InjectionOnDevice, RecordsOnlyBetweenMarks) {
    InjectionRequest made = request("marks");
    made.settings.start_mark = "go";
    made.settings.stop_mark = "halt";
    const InjectedRun run = run_and_print(made);
    EXPECT_EQ(run.exit_status, 3);
    EXPECT_EQ(kernels(run.recording()), 20U);
}

TEST_F(InjectionOnDevice, RecordsOnlyTheKindsThatAreAskedFor) {
    InjectionRequest made = request("plain");
    made.settings.kinds = {RecordKind::kernels};
    const InjectedRun run = run_and_print(made);
    EXPECT_EQ(kernels(run.recording()), 150U);
    EXPECT_TRUE(run.recording().calls.empty());
    EXPECT_TRUE(run.recording().ranges.empty());
    EXPECT_TRUE(run.recording().nodes.empty());
}

TEST_F(InjectionOnDevice, RecordsNothingOfAProcessWithoutAContext) {
    const InjectedRun run = run_and_print(request("nothing"));
    EXPECT_EQ(run.exit_status, 3);
    ASSERT_EQ(run.processes.size(), 1U);
    EXPECT_TRUE(run.processes[0].finished);
    EXPECT_EQ(run.processes[0].failure, "");
    EXPECT_EQ(kernels(run.recording()), 0U);
    EXPECT_TRUE(run.notes.empty());
}

TEST_F(InjectionOnDevice, KeepsContextsApart) {
    const InjectedRun run = run_and_print(request("contexts"));
    EXPECT_EQ(run.exit_status, 3);
    std::map<std::uint32_t, int> contexts;
    for (const Activity& activity : run.recording().activities) ++contexts[activity.context];
    ASSERT_EQ(contexts.size(), 2U);
    EXPECT_EQ(contexts.begin()->second, 5);
    EXPECT_EQ(contexts.rbegin()->second, 7);
}

TEST_F(InjectionOnDevice, RecordsParentAndChildByThemselves) {
    const InjectedRun run = run_and_print(request("fork"));
    EXPECT_EQ(run.exit_status, 3);
    ASSERT_EQ(run.processes.size(), 2U);
    EXPECT_EQ(kernels(run.processes[0].recording), 7U);
    EXPECT_EQ(kernels(run.processes[1].recording), 5U);
}

TEST_F(InjectionOnDevice, WaitsForWhatIsStillRunning) {
    const InjectedRun run = run_and_print(request("busy"));
    EXPECT_EQ(run.exit_status, 3);
    EXPECT_EQ(kernels(run.recording()), 1U);
    EXPECT_EQ(run.recording().untimed, 0U);
}

TEST_F(InjectionOnDevice, SaysThatAProcessWasEndedByForce) {
    const InjectedRun run = run_and_print(request("kill"));
    EXPECT_EQ(run.exit_status, 128 + 9);
    ASSERT_EQ(run.processes.size(), 1U);
    EXPECT_FALSE(run.processes[0].finished);
}

}  // namespace
}  // namespace stowage::profiler
