// What recording costs while it is on, and what is left when it is off.
//
// A process that has recorded cannot be asked how it was before, so there is one process for each way of recording,
// each with its own context, and they take turns at the device: never recorded; recorded and off again; the same with
// CUPTI taken out of the process; recording the operations of a program; recording everything. A block is graphs
// (launches of 200 kernels) and kernels one by one, in the duty of a training step that is bound by the device; and the
// same with kernels so short that the host is what is waited for. Blocks of one round lie beside each other in time, so
// that clocks and power are the same for all; the first round is left out.
//
//   profiler_recorder_cost [ROUNDS]      30 if not given; about 0.5 s a round

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/profiler/cupti/paired_blocks.hpp"
#include "benchmarks/profiler/cupti/stream_kernel.hpp"
#include "executor/cuda/check.hpp"
#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/graph.hpp"
#include "profiler/cupti/recorder.hpp"

namespace {

using namespace stowage;
using benchmarks::launch_increment;
using executor::check;
using profiler::ActivityRecorder;
using profiler::RecorderOptions;
using types::operator""_MiB;

enum class Way { never, off, detached, operations, everything };
constexpr std::array kWays = {Way::never, Way::off, Way::detached, Way::operations, Way::everything};
constexpr std::array kNames = {"never recorded", "recorded, off again", "the same, CUPTI taken out",
                               "recording operations", "recording everything"};

/// What a process is told: a kind of block, or to end.
enum class Order : char { long_kernels, short_kernels, end };

constexpr std::size_t kNumbers = 4U << 20;
constexpr std::size_t kFewNumbers = 1024;

/// One process's work.
class Work {
public:
    explicit Work(Way way) : way_(way), data_(16_MiB) {
        RecorderOptions options;
        if (way == Way::everything) options.kinds = profiler::RecordKinds::all();
        options.detach = way == Way::detached;
        // Before the graphs are captured, as the engine has it: whatever CUPTI does to graphs, it does to these.
        if (way != Way::never) recorder_ = std::make_unique<ActivityRecorder>(options);
        long_.emplace(captured(kNumbers));
        short_.emplace(captured(kFewNumbers));
        if (way == Way::off || way == Way::detached) record_once();
    }

    double run(Order order) {
        const bool is_long = order == Order::long_kernels;
        const bool records = way_ == Way::operations || way_ == Way::everything;
        if (records) recorder_->start();
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < (is_long ? 20 : 100); ++i) {
            (is_long ? *long_ : *short_).launch(stream_.ref());
            for (int kernel = 0; kernel < 100; ++kernel) launch(is_long ? kNumbers : kFewNumbers);
        }
        stream_.synchronize();
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        if (records) {
            recorder_->stop();
            static_cast<void>(recorder_->take());
        }
        return taken.count();
    }

private:
    void launch(std::size_t count) {
        check(launch_increment(reinterpret_cast<float*>(data_.data()), count, stream_.get()), "launching");
    }

    executor::GraphExec captured(std::size_t count) {
        executor::Capture capture(stream_.ref());
        for (int i = 0; i < 200; ++i) launch(count);
        return executor::GraphExec(capture.finish());
    }

    void record_once() {
        recorder_->start();
        long_->launch(stream_.ref());
        short_->launch(stream_.ref());
        for (int i = 0; i < 100; ++i) launch(kNumbers);
        stream_.synchronize();
        recorder_->stop();
        static_cast<void>(recorder_->take());
        recorder_.reset();
    }

    Way way_;
    executor::DeviceBuffer data_;
    executor::Stream stream_;
    std::unique_ptr<ActivityRecorder> recorder_;
    std::optional<executor::GraphExec> long_;
    std::optional<executor::GraphExec> short_;
};

/// A process and the two pipes to it.
struct Worker {
    pid_t process = 0;
    int orders = -1;
    int answers = -1;
};

template <class Value>
bool receive(int from, Value& value) {
    return read(from, &value, sizeof(value)) == static_cast<ssize_t>(sizeof(value));
}

template <class Value>
void send(int to, const Value& value) {
    if (write(to, &value, sizeof(value)) != static_cast<ssize_t>(sizeof(value))) std::exit(1);
}

[[noreturn]] void work(Way way, int orders, int answers) {
    try {
        Work mine(way);
        Order order{};
        while (receive(orders, order) && order != Order::end) send(answers, mine.run(order));
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}: {}\n", kNames.at(static_cast<std::size_t>(way)), error.what());
        std::_Exit(1);
    }
    std::_Exit(0);
}

Worker start(Way way) {
    std::array<int, 2> orders{};
    std::array<int, 2> answers{};
    if (pipe(orders.data()) != 0 || pipe(answers.data()) != 0) std::exit(1);
    const pid_t process = fork();  // before this process has used CUDA, which it never does
    if (process == 0) {
        close(orders[1]);
        close(answers[0]);
        work(way, orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    return {process, orders[1], answers[0]};
}

using Times = std::array<std::vector<double>, kWays.size()>;

Times measure(const std::vector<Worker>& workers, Order order, int rounds) {
    Times times;
    for (int round = -1; round < rounds; ++round)
        for (std::size_t turn = 0; turn < workers.size(); ++turn) {
            // Another one is first in each round.
            const std::size_t which = (turn + static_cast<std::size_t>(round + 1)) % workers.size();
            double taken = 0;
            send(workers[which].orders, order);
            if (!receive(workers[which].answers, taken)) {
                fmt::print(stderr, "the process '{}' ended\n", kNames.at(which));
                std::exit(1);
            }
            if (round >= 0) times.at(which).push_back(taken);
        }
    return times;
}

void print(const char* what, const Times& times) {
    fmt::print("{}\n", what);
    double mean = 0;
    for (const double time : times[0]) mean += 1000 * time / static_cast<double>(times[0].size());
    fmt::print("  {:<28} {:.2f} ms a block\n", kNames[0], mean);
    for (std::size_t i = 1; i < kWays.size(); ++i) {
        const benchmarks::PairedDifference difference = benchmarks::compare(times[0], times.at(i));
        fmt::print("  {:<28} {:+.3f} %, 95 % interval {:+.3f} to {:+.3f}, {} pairs\n", kNames.at(i),
                   difference.mean_percent, difference.lower_percent, difference.upper_percent, difference.pairs);
    }
}

}  // namespace

int main(int count, char** arguments) {
    const int rounds = count > 1 ? std::atoi(arguments[1]) : 30;
    if (rounds < 2) return 2;
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));  // a process that ended says why itself
    std::vector<Worker> workers;
    for (const Way way : kWays) workers.push_back(start(way));
    print("bound by the device: graphs of 200 kernels and kernels one by one, over 16 MiB each",
          measure(workers, Order::long_kernels, rounds));
    print("bound by the host: the same, over 4 KiB each", measure(workers, Order::short_kernels, rounds));
    int failed = 0;
    for (const Worker& worker : workers) {
        send(worker.orders, Order::end);
        int status = 0;
        waitpid(worker.process, &status, 0);
        failed |= status;
    }
    return failed == 0 ? 0 : 1;
}
