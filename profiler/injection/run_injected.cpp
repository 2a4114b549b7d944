#include "profiler/injection/run_injected.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <system_error>

#include "profiler/cupti/cupti_error.hpp"
#include "profiler/injection/child_process.hpp"
#include "profiler/injection/find_cupti.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::profiler {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libstowage_inject.so";
constexpr const char* kLibraryVariable = "STOWAGE_INJECT_LIBRARY";
constexpr const char* kCudaVariable = "CUDA_INJECTION64_PATH";
constexpr const char* kNvtxVariable = "NVTX_INJECTION64_PATH";

bool is_file(const fs::path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

/// A folder of its own that goes with everything in it.
class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string name = (fs::temp_directory_path() / "stowage-profile-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr)
            throw types::Error(types::ExitCode::input,
                               "no folder can be made in " + fs::temp_directory_path().string());
        path_ = name;
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    TemporaryFolder(TemporaryFolder&&) = delete;
    TemporaryFolder& operator=(TemporaryFolder&&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    [[nodiscard]] const fs::path& path() const { return path_; }

private:
    fs::path path_;
};

void note_process(const InjectedProcess& process, std::vector<std::string>& notes) {
    const std::string who = "process " + std::to_string(process.process) + ": ";
    if (!process.failure.empty())
        notes.push_back(who + process.failure);
    else if (!process.finished)
        notes.push_back(who + "it was ended before it could write what was recorded: by a signal, or by _exit");
    for (const std::string& note : process.notes) notes.push_back(who + note);
    for (const std::string& doubt : doubts_about(process.recording)) notes.push_back(who + doubt);
}

/// Files that a process was amid writing are left out; it counts as one that was ended.
std::vector<InjectedProcess> processes_in(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.path().filename().string().find(".partial") == std::string::npos) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::vector<InjectedProcess> processes;
    for (const fs::path& file : files) processes.push_back(read_raw(file));
    std::stable_sort(processes.begin(), processes.end(), [](const auto& left, const auto& right) {
        return left.recording.activities.size() > right.recording.activities.size();
    });
    return processes;
}

}  // namespace

const Recording& InjectedRun::recording() const {
    static const Recording kNone;
    return processes.empty() ? kNone : processes.front().recording;
}

fs::path injection_library(const Environment& environment) {
    if (const auto named = environment.find(kLibraryVariable); named != environment.end() && !named->second.empty()) {
        if (is_file(named->second)) return fs::absolute(named->second);
        throw CuptiError(std::string(kLibraryVariable) + " names no file: " + named->second);
    }
    std::error_code failed;
    const fs::path folder = fs::read_symlink("/proc/self/exe", failed).parent_path();
    const fs::path installed = (folder / STOWAGE_LIBRARY_FOLDER / kLibrary).lexically_normal();
    for (const fs::path& place : {folder / kLibrary, installed})
        if (is_file(place)) return place;
    throw CuptiError(std::string("there is no ") + kLibrary + "; looked for " + (folder / kLibrary).string() + " and " +
                     installed.string() +
                     "\nhint: build the target stowage_inject, which needs the CUDA toolkit, or name the file in " +
                     kLibraryVariable);
}

Environment injected_environment(const InjectionRequest& request, const fs::path& out) {
    Environment environment = current_environment();
    for (const auto& [name, value] : request.environment) environment.insert_or_assign(name, value);
    if (const auto other = environment.find(kCudaVariable); other != environment.end() && !other->second.empty())
        throw CuptiError(std::string(kCudaVariable) + " is already set, to " + other->second +
                         ": another tool records this command, and CUPTI serves one at a time; run it without");
    InjectionSettings settings = request.settings;
    settings.out = out.string();
    for (const auto& [name, value] : environment_of(settings)) environment.insert_or_assign(name, value);
    environment[kCudaVariable] =
        request.injected_library.empty() ? injection_library(environment).string() : request.injected_library.string();
    const std::optional<fs::path> cupti =
        request.cupti.empty() ? find_cupti(request.command, environment) : std::optional(request.cupti);
    if (cupti) environment[kNvtxVariable] = cupti->string();
    return environment;
}

InjectedRun run_injected(const InjectionRequest& request) {
    const TemporaryFolder folder;
    const Environment environment = injected_environment(request, folder.path() / "process");
    InjectedRun run;
    run.exit_status = profiler::run(request.command, environment);
    run.processes = processes_in(folder.path());
    if (run.processes.empty())
        run.notes.emplace_back(
            "nothing was recorded: no process of the command initialised CUDA, or the driver could not load " +
            environment.at(kCudaVariable));
    if (!environment.contains(kNvtxVariable))
        run.notes.emplace_back("libcupti.so.13 was not found, so NVTX ranges are not recorded: name it");
    for (const InjectedProcess& process : run.processes) note_process(process, run.notes);
    return run;
}

}  // namespace stowage::profiler
