#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "profiler/cupti/recorder.hpp"
#include "profiler/injection/injection_settings.hpp"
#include "profiler/injection/raw_file.hpp"

namespace stowage::profiler {

/// What is recorded in a process that was injected into, from the driver's first call to the end of the process.
///
/// The file is there from the beginning, marked as not finished: whoever finds it so knows that the process was ended
/// by force. It is written anew at the end. A process made by fork is not recorded: CUDA does not work in it, and
/// nothing here is its own.
class Injection {
public:
    /// Never throws: what goes wrong is told on standard error and in the file.
    explicit Injection(InjectionSettings settings);
    Injection(const Injection&) = delete;
    Injection& operator=(const Injection&) = delete;
    Injection(Injection&&) = delete;
    Injection& operator=(Injection&&) = delete;
    ~Injection() = default;

    /// Waits for the devices, stops recording and writes the file. Once; nothing in a process made by fork.
    void finish() noexcept;

private:
    void open();
    void start();
    void keep_time();
    void handle_mark(std::string_view name);
    void collect();
    void fail(const std::string& why);

    InjectionSettings settings_;
    InjectedProcess process_;
    std::string file_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool started_ = false;
    bool over_ = false;  ///< its time has passed: marks start it no more
    bool finished_ = false;
    std::unique_ptr<ActivityRecorder> recorder_;
    std::atomic<ActivityRecorder*> ready_{nullptr};  ///< the same, for marks, which come on any thread at any time
};

}  // namespace stowage::profiler
