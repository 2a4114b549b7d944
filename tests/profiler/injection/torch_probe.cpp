// Runs a command, recorded from within, and says what was recorded: for looking at PyTorch where there is a device.
//
//   injected_torch_probe python3 tests/profiler/torch/marked_training.py

#include <fmt/core.h>

#include <filesystem>
#include <map>

#include "profiler/cupti/range_marks.hpp"
#include "profiler/injection/run_injected.hpp"

namespace {

using namespace stowage;
using namespace stowage::profiler;

struct Sum {
    int activities = 0;
    types::Nanoseconds busy{};
};

/// As `correlate` has it: of a node the mark of its capture, else that of its call.
std::string whose(const RawStep& step, const Activity& activity) {
    const auto node = step.activities.node_operations.find(activity.graph_node);
    const auto mark =
        step.marks.find(node == step.activities.node_operations.end() ? activity.issued_under : node->second);
    if (mark == step.marks.end()) return "(nobody)";
    return fmt::format("{:<10} {}", mark->second.phase, mark->second.module.empty() ? "(layer)" : mark->second.module);
}

void print_step(const RawStep& step) {
    std::map<std::string, Sum> sums;
    for (const Activity& activity : step.activities.activities) {
        Sum& sum = sums[whose(step, activity)];
        ++sum.activities;
        sum.busy += activity.end - activity.start;
    }
    std::map<MemoryEvent::Kind, int> memory;
    for (const MemoryEvent& event : step.memory) ++memory[event.kind];
    fmt::print("step '{}'{}: {} activities, {} calls, {} allocated, {} freed, {} saved\n", step.stage,
               step.graphs ? " with graphs" : "", step.activities.activities.size(), step.activities.calls.size(),
               memory[MemoryEvent::Kind::allocate], memory[MemoryEvent::Kind::free], memory[MemoryEvent::Kind::save]);
    for (const auto& [name, sum] : sums)
        fmt::print("  {:<32} {:>5} activities {:>10.1f} us\n", name, sum.activities, types::in_microseconds(sum.busy));
}

void print_clock(const Recording& recording) {
    for (const NvtxMark& mark : recording.marks) {
        const std::string_view name = recording.names.at(mark.name);
        if (!name.starts_with("clock time=")) continue;
        const long long said = std::stoll(std::string(name.substr(11)));
        fmt::print("clock: CUPTI's is {:.1f} us ahead of the system's\n",
                   static_cast<double>(mark.time.count() - said) / 1e3);
    }
}

void print_threads(const Recording& recording) {
    std::map<std::uint32_t, int> ranges;
    for (const NvtxRange& range : recording.ranges) ++ranges[range.thread];
    for (const auto& [thread, count] : ranges) fmt::print("thread {}: {} ranges\n", thread, count);
}

}  // namespace

int main(int count, char** arguments) {
    InjectionRequest request;
    request.command.assign(arguments + 1, arguments + count);
    const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    if (const auto beside = here / "libstowage_inject.so"; std::filesystem::exists(beside))
        request.injected_library = beside;
    try {
        const InjectedRun run = run_injected(request);
        for (const std::string& note : run.notes) fmt::print("note: {}\n", note);
        for (const InjectedProcess& process : run.processes)
            fmt::print("process {} with {} {}: {} activities, {} calls, {} ranges, {} marks, {} nodes, {} buffers\n",
                       process.process, process.cupti, process.cupti_version, process.recording.activities.size(),
                       process.recording.calls.size(), process.recording.ranges.size(), process.recording.marks.size(),
                       process.recording.nodes.size(), process.recording.buffers);
        print_threads(run.recording());
        print_clock(run.recording());
        for (const RawStep& step : steps_by_ranges(run.recording())) print_step(step);
        return run.exit_status;
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
