#include "profiler/injection/injection.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <thread>
#include <utility>

#include "profiler/cupti/cupti_api.hpp"
#include "profiler/injection/driver.hpp"
#include "profiler/injection/process_facts.hpp"
#include "profiler/injection/wait_for_devices.hpp"

namespace stowage::profiler {
namespace {

constexpr std::chrono::seconds kPatience(10);
constexpr const char* kNvtxVariable = "NVTX_INJECTION64_PATH";

/// The library that NVTX hands ranges to, if it is CUPTI.
std::string cupti_of_nvtx() {
    const char* const named = std::getenv(kNvtxVariable);  // NOLINT(concurrency-mt-unsafe): nobody sets it here
    const std::filesystem::path path(named == nullptr ? "" : named);
    return path.filename().string().starts_with("libcupti.so") ? path.string() : "";
}

}  // namespace

Injection::Injection(InjectionSettings settings) : settings_(std::move(settings)) {
    process_.process = static_cast<std::uint32_t>(getpid());
    file_ = settings_.out + "." + std::to_string(getpid());
    try {
        process_.command = command_line();
        write_raw(file_, process_);
        open();
        if (settings_.starts_at_once()) start();
        if (settings_.start_after || settings_.record_for) std::thread([this] { keep_time(); }).detach();
    } catch (const std::exception& error) {
        fail(error.what());
    }
}

void Injection::open() {
    process_.cupti = cupti_of_nvtx();
    const std::shared_ptr<CuptiApi> cupti = open_cupti(process_.cupti);
    static_cast<void>(cupti->version(&process_.cupti_version));
    RecorderOptions options;
    options.kinds = settings_.kinds;
    options.watch_waits = true;
    if (!settings_.start_mark.empty() || !settings_.stop_mark.empty())
        options.on_nvtx = [this](std::string_view name) { handle_mark(name); };
    recorder_ = std::make_unique<ActivityRecorder>(cupti, options);
    ready_ = recorder_.get();
    if (process_.cupti.empty() && settings_.kinds.has(RecordKind::ranges))
        process_.notes.push_back(std::string(kNvtxVariable) + " names no libcupti.so.13, so NVTX ranges are not seen");
}

void Injection::start() {
    {
        const std::scoped_lock lock(mutex_);
        if (over_) return;
    }
    recorder_->start();
    const std::scoped_lock lock(mutex_);
    started_ = true;
    changed_.notify_all();
}

void Injection::handle_mark(std::string_view name) {
    ActivityRecorder* const recorder = ready_;
    if (recorder == nullptr || name.empty()) return;
    if (name == settings_.start_mark) start();
    if (name == settings_.stop_mark) recorder->pause();
}

void Injection::keep_time() {
    try {
        if (settings_.start_after) {
            std::this_thread::sleep_for(*settings_.start_after);
            start();
        }
        if (!settings_.record_for) return;
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return started_ || finished_; });
            changed_.wait_for(lock, *settings_.record_for, [&] { return finished_; });
            if (finished_) return;
            over_ = true;
        }
        recorder_->pause();
    } catch (const std::exception& error) {
        fail(error.what());
    }
}

void Injection::fail(const std::string& why) {
    std::fprintf(stderr, "stowage: process %d is not recorded: %s\n", static_cast<int>(getpid()), why.c_str());
    const std::scoped_lock lock(mutex_);
    process_.failure = why;
}

void Injection::collect() {
    if (recorder_ == nullptr) return;
    if (!wait_for_devices(kPatience))
        process_.notes.push_back("a device was still busy " + std::to_string(kPatience.count()) +
                                 " s after the process had ended: what it did then is missing");
    recorder_->stop();
    process_.devices = used_devices();
    process_.recording = recorder_->take();
    for (const std::string& loaded : loaded_cuptis()) {
        std::error_code ignored;
        if (!process_.cupti.empty() && !std::filesystem::equivalent(loaded, process_.cupti, ignored))
            process_.notes.push_back("recorded with " + process_.cupti + ", but the process has loaded " + loaded +
                                     " too: name that one in " + kNvtxVariable + " if ranges are missing");
    }
}

void Injection::finish() noexcept {
    if (static_cast<std::uint32_t>(getpid()) != process_.process) return;
    {
        const std::scoped_lock lock(mutex_);
        if (std::exchange(finished_, true)) return;
        changed_.notify_all();
    }
    try {
        collect();
    } catch (const std::exception& error) {
        fail(error.what());
    }
    try {
        process_.finished = true;
        write_raw(file_, process_);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "stowage: what was recorded cannot be written: %s\n", error.what());
    }
}

}  // namespace stowage::profiler
