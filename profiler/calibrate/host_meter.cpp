#include "profiler/calibrate/host_meter.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "executor/cuda/check.hpp"
#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/pinned_arena.hpp"
#include "profiler/calibrate/probe_kernels.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::calibrate {
namespace {

using executor::check;
using types::operator""_MiB;

constexpr int kLaunches = 200;
constexpr int kCopies = 50;
constexpr int kLibraryCalls = 20;
constexpr int kAllocations = 10;
constexpr Bytes kCopied = 1_MiB;
constexpr Bytes kPinnedPiece = 256_MiB;
constexpr int kMostLaunches = 100'000;

/// Microseconds that `work` takes.
template <class Work>
double microseconds_of(const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
    return taken.count();
}

/// Counts launches behind a kernel that does not end, until the count stands still.
class Backlog {
public:
    Backlog() {
        flag() = 0;
        executor::check(cudaHostGetDevicePointer(&on_device_, flag_.data(), 0), "looking for a flag's place");
    }
    std::int64_t measure(cudaStream_t stream) {
        hold(static_cast<const int*>(on_device_), stream);
        std::thread watcher([this] { watch(); });
        for (int i = 0; i < kMostLaunches && !released_; ++i) {
            empty_kernel(1, stream);
            ++launched_;
        }
        over_ = true;
        watcher.join();
        check(cudaGetLastError(), "launching kernels behind one that does not end");
        check(cudaStreamSynchronize(stream), "waiting for launches that were held back");
        return stood_at_;
    }

private:
    [[nodiscard]] volatile int& flag() { return *reinterpret_cast<volatile int*>(flag_.data()); }

    void watch() {
        std::int64_t before = -1;
        while (!over_ && launched_ != before) {
            before = launched_;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        stood_at_ = over_ ? 0 : before + 1;  // the kernel that does not end is one too
        released_ = true;
        flag() = 1;
    }

    executor::PinnedBuffer flag_{Bytes{4096}};
    void* on_device_ = nullptr;
    std::atomic<std::int64_t> launched_{0};
    std::atomic<bool> released_{false};
    std::atomic<bool> over_{false};
    std::int64_t stood_at_ = 0;
};

}  // namespace

std::vector<KernelCase> host_call_kernels() {
    std::vector<KernelCase> cases;
    for (const KernelKind kind :
         {KernelKind::linear_forward, KernelKind::linear_input_gradient, KernelKind::linear_weight_gradient})
        cases.push_back(linear(kind, 256, 512, 512));
    for (const KernelKind kind : {KernelKind::attention_forward, KernelKind::attention_backward})
        cases.push_back(attention(kind, 256, 256, 4, 128, 128));
    return cases;
}

/// Host time of one of several calls; the device is idle before, and done after.
template <class Work>
double HostMeter::each(int count, const Work& work) {
    const double total = microseconds_of([&] {
        for (int i = 0; i < count; ++i) work();
    });
    check(cudaGetLastError(), "timing a call");
    stream_.synchronize("timing a call");
    return total / count;
}

double HostMeter::kernel(HostCall call) {
    const std::size_t which = index(call) - index(HostCall::gemm_forward);
    const KernelCase kernel = host_call_kernels().at(which);
    return each(kLibraryCalls, [&] { runner_.launch(kernel, 0, stream_.get()); });
}

double HostMeter::allocate(Bytes size) const {
    std::vector<executor::DeviceBuffer> kept;
    const double total = microseconds_of([&] {
        for (int i = 0; i < kAllocations; ++i) kept.emplace_back(size);
    });
    return total / kAllocations;
}

double HostMeter::call(HostCall call) {
    const cudaStream_t stream = stream_.get();
    const auto bytes = static_cast<std::size_t>(kCopied.count);
    switch (call) {
        case HostCall::kernel_launch: return each(kLaunches, [&] { empty_kernel(1, stream); });
        case HostCall::copy_to_host:
            return each(kCopies, [&] {
                check(cudaMemcpyAsync(pinned_, runner_.scratch(), bytes, cudaMemcpyDeviceToHost, stream),
                      "timing a copy's call");
            });
        case HostCall::copy_to_device:
            return each(kCopies, [&] {
                check(cudaMemcpyAsync(runner_.scratch(), pinned_, bytes, cudaMemcpyHostToDevice, stream),
                      "timing a copy's call");
            });
        case HostCall::event_record: return each(kLaunches, [&] { event_.record(stream_.ref()); });
        case HostCall::event_wait: return each(kLaunches, [&] { event_.make_wait(stream_.ref()); });
        case HostCall::event_query: return each(kLaunches, [&] { static_cast<void>(event_.is_done()); });
        case HostCall::synchronize:
            return each(kLaunches, [] { check(cudaDeviceSynchronize(), "timing a synchronisation"); });
        case HostCall::device_allocation_2_mib: return allocate(2_MiB);
        case HostCall::device_allocation_20_mib: return allocate(20_MiB);
        default: return kernel(call);
    }
}

std::int64_t HostMeter::launch_queue_depth() const {
    Backlog backlog;
    return backlog.measure(stream_.get());
}

double HostMeter::pinned_allocation_us_per_gib() {
    executor::PinnedBuffer buffer;
    const double us = microseconds_of([&] { buffer = executor::PinnedBuffer(kPinnedPiece); });
    return us * static_cast<double>(std::int64_t{1} << 30) / static_cast<double>(kPinnedPiece.count);
}

}  // namespace stowage::calibrate
