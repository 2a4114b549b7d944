#include "cli/profile_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "profiler/cupti/range_marks.hpp"
#include "profiler/injection/run_injected.hpp"
#include "profiler/record/make_recording.hpp"

namespace stowage::cli {
namespace {

using profiler::RecordKind;

/// What the command prints goes to standard error while this lives: standard output is the answer's.
class AnswersOnly {
public:
    explicit AnswersOnly(bool wanted) {
        if (!wanted) return;
        std::fflush(stdout);
        kept_ = dup(STDOUT_FILENO);
        if (kept_ >= 0) dup2(STDERR_FILENO, STDOUT_FILENO);
    }
    AnswersOnly(const AnswersOnly&) = delete;
    AnswersOnly& operator=(const AnswersOnly&) = delete;
    AnswersOnly(AnswersOnly&&) = delete;
    AnswersOnly& operator=(AnswersOnly&&) = delete;
    ~AnswersOnly() {
        if (kept_ < 0) return;
        dup2(kept_, STDOUT_FILENO);
        close(kept_);
    }

private:
    int kept_ = -1;
};

std::string joined(const std::vector<std::string>& words, const char* between) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
    return text;
}

profiler::InjectedRun run(const CommonOptions& common, const CommandProfile& profile) {
    profiler::InjectionRequest request;
    request.command = profile.command;
    request.settings.kinds = {RecordKind::operations,   RecordKind::kernels, RecordKind::copies,
                              RecordKind::peer_copies,  RecordKind::memsets, RecordKind::runtime_calls,
                              RecordKind::driver_calls, RecordKind::ranges,  RecordKind::graph_nodes};
    const AnswersOnly answers_only(common.json);
    return profiler::run_injected(request);
}

/// Of the device that the process used; libraries are not known.
recording::Machine machine_of(const profiler::InjectedProcess& process) {
    recording::Machine machine;
    if (process.devices.empty()) return machine;
    const profiler::UsedDevice& device = process.devices.front();
    machine.device = device.name;
    machine.driver = device.driver;
    machine.multiprocessors = device.multiprocessors;
    machine.memory = device.memory;
    return machine;
}

}  // namespace

void CommandProfile::add_to(CLI::App& verb) {
    verb.add_option("--implementation", implementation, "of a command: whose layers it runs (megatron)")
        ->type_name("NAME");
}

recording::Recording profile_command(const CommonOptions& common, const CommandProfile& profile) {
    const profiler::InjectedRun done = run(common, profile);
    if (done.exit_status != 0)
        throw types::Error(types::ExitCode::no,
                           fmt::format("profile: the command ended with {}: nothing is written", done.exit_status));
    if (done.recording().activities.empty()) throw NoDeviceError("profile: " + joined(done.notes, "; "));
    for (const std::string& note : done.notes) say(common, note);
    if (done.processes.size() > 1)
        say(common,
            fmt::format("{} processes used CUDA; recorded is the one with most activities", done.processes.size()));
    recording::Recording header;
    header.source = "injected";
    header.implementation = profile.implementation;
    header.machine = machine_of(done.processes.front());
    header.scenario_name = joined(profile.command, " ");
    return profiler::make_recording(profiler::steps_by_ranges(done.recording()), std::move(header));
}

}  // namespace stowage::cli
