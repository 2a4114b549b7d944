#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/types/bytes.hpp"
#include "scenarios/types/enum_names.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::types {

/// What slows a kernel down, and by how much, when copies run beside it.
enum class KernelClass : std::uint8_t { gemm, attention, memory_bound };
inline constexpr int kKernelClassCount = 3;
template <>
struct EnumNames<KernelClass> {
    static constexpr std::array<std::pair<KernelClass, std::string_view>, kKernelClassCount> values{
        {{KernelClass::gemm, "gemm"},
         {KernelClass::attention, "attention"},
         {KernelClass::memory_bound, "memory_bound"}}};
};

/// Fractions of a kernel's own time that concurrent copies add: 0.03 makes 100 us 103 us.
struct Slowdown {
    double under_d2h = 0;
    double under_h2d = 0;
    double under_both = 0;
};

/// One measured copy: this many bytes took this long, alone on its engine.
struct CopyPoint {
    Bytes size;
    Nanoseconds time;
};

/// Copy time by size in one direction, from measured points in rising order of size.
/// At a point the time is the point's; between two points it lies on the straight line between them; below the first it
/// keeps the slope of the first interval but never falls below a third of the first point's time (a copy has a fixed
/// cost); above the last it keeps the rate of the last point.
class CopyCurve {
public:
    CopyCurve() = default;
    /// Throws: std::logic_error unless there are at least two points, sizes and times strictly rising.
    explicit CopyCurve(std::vector<CopyPoint> points);
    /// Cost: O(log points). Zero bytes take no time.
    [[nodiscard]] Nanoseconds time(Bytes size) const;
    [[nodiscard]] const std::vector<CopyPoint>& points() const { return points_; }
    /// The rate of the largest measured copy.
    [[nodiscard]] BytesPerSecond peak_rate() const;

private:
    std::vector<CopyPoint> points_;
};

/// A link between devices, one direction of one device: time = latency + bytes / rate.
struct Link {
    BytesPerSecond rate;
    Nanoseconds latency{0};
};

/// What attention loses where there is little of it: its time is (1 + start_keys / keys a row sees) times (1 +
/// tail_blocks / blocks) times that at the full rate. A block is 128 rows of a head's scores, the unit that a
/// multiprocessor takes; the second factor is for a causal mask, whose blocks differ in length, so that some
/// multiprocessors end early, and is less where they differ less.
struct AttentionLoss {
    double start_keys = 0;
    double tail_blocks = 0;
};

/// The rate of attention with heads of this size, as a share of that with 128.
struct HeadSizeRate {
    double head_size = 0;
    double forward = 1;
    double backward = 1;
};

/// What a chip at its power limit gains where it does not multiply: its clock rises until its mean power is at the
/// limit again. With GEMMs or attention running for this share of the time, they run at so many times the device's
/// rates.
struct DutyRate {
    double duty = 1;
    double gemm = 1;
    double attention = 1;
};

/// One GPU. Rates are what kernels sustain in training, not data-sheet peaks.
struct Device {
    std::string name;
    int compute_capability = 0;             ///< 90 is 9.0
    Bytes memory;                           ///< usable by the caching allocator: total less context and libraries
    FlopsPerSecond gemm_bf16;               ///< multiplying, apart from `gemm_ramp` and from writing the result
    FlopsPerSecond gemm_fp8;                ///< 0: no FP8
    FlopsPerSecond gemm_fp8_blockwise;      ///< the same where every block of an operand has a scale; 0: as gemm_fp8
    Nanoseconds gemm_ramp{0};               ///< what a GEMM spends on filling its pipelines and draining them
    FlopsPerSecond attention_forward_bf16;  ///< of heads of 128 in large numbers
    FlopsPerSecond attention_backward_bf16;
    AttentionLoss attention_forward;
    AttentionLoss attention_backward;
    std::vector<HeadSizeRate> attention_head_sizes;  ///< rising; between two, the line between them; none: all alike
    std::vector<DutyRate> rates_by_duty;  ///< rising, below 1; between two, the line between them; none: always 1
    BytesPerSecond memory_bandwidth;
    BytesPerSecond strided_bandwidth;  ///< gathering a strided view, bytes read and written; 0: as memory_bandwidth
    Nanoseconds kernel_overhead{0};    ///< fixed device time of any kernel
};

/// The copy engines between a device and pinned host memory.
struct CopyEngines {
    CopyCurve device_to_host;
    CopyCurve host_to_device;
    double duplex_device_to_host = 1;  ///< share of its own rate each direction keeps while both run
    double duplex_host_to_device = 1;
    /// How long the engine that copies to the host stays with a stream while other work of it waits, cudaMalloc's for
    /// one; 0: that waits for nothing.
    Nanoseconds time_slice{0};
    Slowdown slowdown[kKernelClassCount];  ///< indexed by KernelClass
};

/// What the host thread pays to issue one operation.
struct HostCosts {
    Nanoseconds kernel_launch{0};       ///< bare launch of a kernel
    Nanoseconds framework_forward{0};   ///< what PyTorch and the layers add for each kernel of a forward
    Nanoseconds framework_backward{0};  ///< the same for backward, on the autograd thread
    Nanoseconds gemm_call{0};           ///< stowage's own layers: a call of cuBLASLt; 0: as kernel_launch
    Nanoseconds attention_call{0};      ///< stowage's own layers: attention by cuDNN; 0: as kernel_launch
    Nanoseconds copy_launch{0};
    Nanoseconds event_call{0};              ///< record, wait or query of an event
    Nanoseconds synchronize{0};             ///< host side of a device synchronisation once the device is idle
    Nanoseconds device_allocation_call{0};  ///< cudaMalloc, when the caching allocator has no block
    Nanoseconds pinned_allocation_per_gib{0};
    BytesPerSecond memory_bandwidth;         ///< of the machine, reads and writes together; 0: not known
    std::int64_t launch_queue_depth = 1024;  ///< launches in flight before the host blocks
};

/// What CUDA graphs cost: to the host, on the device, and in device memory that no allocator counts.
struct GraphCosts {
    Nanoseconds launch{0};              ///< host: launching a graph of one branch, without its nodes
    Nanoseconds launch_per_node{0};     ///< host: what each node adds
    Nanoseconds launch_per_branch{0};   ///< host: what each further branch adds
    Nanoseconds framework_forward{0};   ///< host: what the framework adds for each replayed forward graph
    Nanoseconds framework_backward{0};  ///< the same for a backward graph
    Nanoseconds instantiate_per_node{0};
    Nanoseconds node_overhead{0};  ///< device: fixed time of a kernel node, in place of Device::kernel_overhead
    Bytes memory_per_graph;        ///< device memory of an executable graph, without its nodes
    Bytes memory_per_node;
    Bytes memory_per_branch;  ///< of each further branch
    /// Share of its rate that a copy of a graph keeps beside the graph's kernels. Eager copies keep theirs.
    double copy_device_to_host = 1;
    double copy_host_to_device = 1;
};

/// A machine: devices, the links inside it and out of it, and its memory.
struct Node {
    std::string name;
    int gpus_per_node = 0;
    Device device;
    CopyEngines copy;
    HostCosts host;
    GraphCosts graph;
    Link nvlink;   ///< per device, one direction
    Link network;  ///< per device, one direction
    Bytes host_memory;
};

/// The hardware of a scenario.
struct Hardware {
    Node node;
    int nodes = 1;
    [[nodiscard]] std::int64_t gpus() const { return static_cast<std::int64_t>(nodes) * node.gpus_per_node; }
};

}  // namespace stowage::types
