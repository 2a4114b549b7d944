#include "profiler/calibrate/device_bench.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "executor/cuda/check.hpp"
#include "executor/cuda/device.hpp"
#include "executor/cuda/device_arena.hpp"
#include "executor/engine/versions.hpp"
#include "executor/workload/kernels/debug.hpp"
#include "profiler/calibrate/copy_lanes.hpp"
#include "profiler/calibrate/graph_meter.hpp"
#include "profiler/calibrate/host_meter.hpp"
#include "profiler/calibrate/kernel_runner.hpp"
#include "profiler/calibrate/state_sampler.hpp"

namespace stowage::calibrate {
namespace {

using Clock = std::chrono::steady_clock;
using executor::check;
using executor::Event;
using executor::EventTiming;

constexpr int kEstimateCalls = 3;
constexpr int kMostCalls = 800;         // below the depth of the launch queue
constexpr double kBesideStretch = 1.6;  // copies last so many times the block
constexpr double kBesidePeriod = 2;     // from block to block
constexpr double kGateUs = 600;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void wait_until(Clock::time_point end) {
    while (Clock::now() < end) {
    }
}

Clock::duration milliseconds(double count) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(count));
}

int visible_devices() {
    int count = 0;
    check(cudaGetDeviceCount(&count), "counting devices");
    return count;
}

executor::DeviceInfo first_device() {
    if (const auto reason = executor::no_device_reason()) throw executor::DeviceError(*reason);
    check(cudaSetDevice(0), "choosing the first device");
    return executor::current_device();
}

/// The events of one pass over a mix: before each kernel and after the last.
using Marks = std::vector<Event>;

class DeviceBench final : public Bench {
public:
    DeviceBench() : info_(first_device()), sampler_(info_.pci_bus_id) {}

    Machine machine() override {
        return {.device = info_.name,
                .compute_capability = 10 * info_.major + info_.minor,
                .multiprocessors = info_.multiprocessors,
                .devices = visible_devices(),
                .total_memory = info_.total_memory,
                .driver = executor::cuda_version_text(info_.driver_version),
                .cuda = executor::cuda_version_text(info_.runtime_version),
                .cublaslt = executor::cublaslt_version(),
                .cudnn = executor::cudnn_version(),
                .power_limit_watts = sampler_.power_limit_watts(),
                .monitor_absence = sampler_.absence()};
    }

    Prepared prepare(std::span<const KernelCase> kernels) override {
        Prepared prepared;
        prepared.memory.context = info_.total_memory - info_.free_memory;
        prepared.memory.kernels = load_everything();
        std::vector<KernelCase> all(kernels.begin(), kernels.end());
        for (const KernelCase& kernel : host_call_kernels()) all.push_back(kernel);
        prepared.memory.gemms = prepare_kind(all, false, prepared.refused);
        prepared.memory.attention = prepare_kind(all, true, prepared.refused);
        prepared.memory.free =
            info_.free_memory - prepared.memory.kernels - prepared.memory.gemms - prepared.memory.attention;
        return prepared;
    }

    Block run(const KernelCase& kernel, double milliseconds_wanted) override {
        const int calls = calls_for(kernel, milliseconds_wanted);
        start_.record(stream_.ref());
        for (int i = 0; i < calls; ++i) runner_->launch(kernel, turn_++, stream_.get());
        end_.record(stream_.ref());
        const State state = sampler_.until(end_);
        return {types::in_microseconds(executor::elapsed(start_.ref(), end_.ref())) / calls, state};
    }

    std::vector<MixRound> run_mix(std::span<const KernelCase> kernels, double duty, double seconds) override {
        std::vector<MixRound> rounds;
        const auto start = Clock::now();
        Marks current = marks_for(kernels);
        Marks next = marks_for(kernels);
        issue_mix(kernels, current);
        while (seconds_since(start) < seconds) {
            if (duty >= 1) issue_mix(kernels, next);  // behind the one that runs, so that the device never waits
            rounds.push_back(read_mix(current));
            if (duty < 1) idle_after(rounds.back(), duty);
            if (duty < 1) issue_mix(kernels, next);
            std::swap(current, next);
        }
        current.back().synchronize();
        return rounds;
    }

    BesideBlock run_beside(const KernelCase& kernel, double milliseconds_wanted, Beside beside) override {
        const auto begin = Clock::now();
        const int calls = calls_for(kernel, milliseconds_wanted);
        executor::kernels::spin(static_cast<std::uint64_t>(kGateUs * 1e3), stream_.get());
        start_.record(stream_.ref());
        lanes_->run_behind(start_, beside, kBesideStretch * milliseconds_wanted);
        for (int i = 0; i < calls; ++i) runner_->launch(kernel, turn_++, stream_.get());
        end_.record(stream_.ref());
        BesideBlock result;
        result.block.state = sampler_.until(end_);
        const double us = types::in_microseconds(executor::elapsed(start_.ref(), end_.ref()));
        result.block.call_us = us / calls;
        result.covered = std::min(1.0, 1e3 * lanes_->wait(start_, beside) / us);
        wait_until(begin + milliseconds(kBesidePeriod * milliseconds_wanted));
        return result;
    }

    double copy(const CopyCase& copy) override { return lanes_->copy(copy); }
    DuplexRound copy_both(Bytes size) override { return lanes_->copy_both(size); }
    SharedCopies copy_on_all(CopyDirection direction, Bytes size) override {
        return copy_on_all_devices(visible_devices(), direction, size);
    }
    double host_call(HostCall call) override { return host_->call(call); }
    std::int64_t launch_queue_depth() override { return host_->launch_queue_depth(); }
    double pinned_allocation_us_per_gib() override { return HostMeter::pinned_allocation_us_per_gib(); }
    double launch_graph(const GraphShape& shape) override { return graphs_->launch(shape); }
    GraphStock stock_graphs(const GraphShape& shape, int graphs) override { return graphs_->stock(shape, graphs); }
    double empty_kernels(int kernels, bool in_graph) override { return graphs_->empty_kernels(kernels, in_graph); }
    double seconds() override { return seconds_since(start_of_all_); }

private:
    /// Returns what the kernels of stowage take of the device, its arenas not counted.
    Bytes load_everything() {
        runner_.emplace();
        lanes_.emplace(runner_->scratch());
        host_.emplace(*runner_, lanes_->pinned());
        graphs_.emplace(runner_->scratch(), lanes_->pinned(), info_.multiprocessors);
        return info_.free_memory - executor::device_memory_room().free - runner_->arenas();
    }

    /// Attention, or all that is not. Returns the device memory that went, what kernels keep of their own not counted.
    Bytes prepare_kind(const std::vector<KernelCase>& kernels, bool attention, std::vector<Refusal>& refused) {
        const Bytes before = executor::device_memory_room().free;
        const Bytes arenas = runner_->arenas();
        for (const KernelCase& kernel : kernels) {
            if (is_attention(kernel.kind) != attention) continue;
            try {
                runner_->prepare(kernel);
            } catch (const types::Error& error) {
                refused.push_back({kernel, error.what()});
            }
        }
        return before - executor::device_memory_room().free - (runner_->arenas() - arenas);
    }

    int calls_for(const KernelCase& kernel, double milliseconds_wanted) {
        const auto known =
            std::ranges::find(call_us_, kernel, [](const auto& entry) -> const KernelCase& { return entry.first; });
        double us = 0;
        if (known == call_us_.end()) {
            start_.record(stream_.ref());
            for (int i = 0; i < kEstimateCalls; ++i) runner_->launch(kernel, turn_++, stream_.get());
            end_.record(stream_.ref());
            end_.synchronize();
            us = types::in_microseconds(executor::elapsed(start_.ref(), end_.ref())) / kEstimateCalls;
            call_us_.emplace_back(kernel, us);
        } else {
            us = known->second;
        }
        return std::clamp(static_cast<int>(milliseconds_wanted * 1e3 / us), 1, kMostCalls);
    }

    static Marks marks_for(std::span<const KernelCase> kernels) {
        Marks marks;
        for (std::size_t i = 0; i <= kernels.size(); ++i) marks.emplace_back(EventTiming::on);
        return marks;
    }
    void issue_mix(std::span<const KernelCase> kernels, const Marks& marks) {
        for (std::size_t i = 0; i < kernels.size(); ++i) {
            marks[i].record(stream_.ref());
            runner_->launch(kernels[i], turn_, stream_.get());
        }
        marks.back().record(stream_.ref());
        ++turn_;
    }
    MixRound read_mix(const Marks& marks) {
        MixRound round;
        round.state = sampler_.until(marks.back());
        for (std::size_t i = 0; i + 1 < marks.size(); ++i)
            round.call_us.push_back(types::in_microseconds(executor::elapsed(marks[i].ref(), marks[i + 1].ref())));
        return round;
    }
    static void idle_after(const MixRound& round, double duty) {
        const auto done = Clock::now();
        double busy_us = 0;
        for (const double us : round.call_us) busy_us += us;
        wait_until(done + milliseconds(busy_us / 1e3 * (1 / duty - 1)));
    }

    Clock::time_point start_of_all_ = Clock::now();
    executor::DeviceInfo info_;
    StateSampler sampler_;
    executor::Stream stream_;
    Event start_{EventTiming::on};
    Event end_{EventTiming::on};
    std::optional<KernelRunner> runner_;
    std::optional<CopyLanes> lanes_;
    std::optional<HostMeter> host_;
    std::optional<GraphMeter> graphs_;
    std::vector<std::pair<KernelCase, double>> call_us_;
    int turn_ = 0;
};

}  // namespace

std::unique_ptr<Bench> make_device_bench() { return std::make_unique<DeviceBench>(); }

}  // namespace stowage::calibrate
