#pragma once

// What is measured, in plain types: they cross the border between the command and the library that drives a GPU.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/calibrate/kernel_case.hpp"
#include "scenarios/types/bytes.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::calibrate {

using types::Bytes;

/// The machine, before anything is measured.
struct Machine {
    std::string device;  ///< as the driver calls it: "NVIDIA H200"
    int compute_capability = 0;
    int multiprocessors = 0;
    int devices = 1;  ///< that are visible
    Bytes total_memory;
    std::string driver;  ///< newest CUDA that it knows: "13.0"
    std::string cuda;
    std::string cublaslt;
    std::string cudnn;
    double power_limit_watts = 0;      ///< 0: the driver does not say
    std::string monitor_absence = {};  ///< why clocks and power are not known, if so
};

/// Mean clock and power while something ran; 0 where the driver did not say.
struct State {
    double clock_mhz = 0;
    double watts = 0;
};

/// One block of back-to-back calls.
struct Block {
    double call_us = 0;
    State state;
};

struct KernelTimes {
    KernelCase kernel;
    std::vector<Block> blocks;
};

/// A layer's step again and again, with the device idle for some of the time.
struct MixRound {
    std::vector<double> call_us;  ///< of each kernel of the mix
    State state;
};
struct MixTimes {
    double duty = 1;  ///< share of the time that the device works
    std::vector<KernelCase> kernels;
    std::vector<MixRound> rounds;
};

enum class Beside : std::uint8_t { nothing, device_to_host, host_to_device, both };
inline constexpr std::size_t kBesides = 4;
constexpr std::size_t index(Beside beside) { return static_cast<std::size_t>(beside); }

/// A block beside copies.
struct BesideBlock {
    Block block;
    double covered = 0;  ///< share of the block during which the copies asked for ran
};
/// One block of each kind, directly after one another.
struct BesideRound {
    std::array<BesideBlock, kBesides> blocks;
};
struct BesideTimes {
    types::KernelClass kernel_class{};
    KernelCase kernel;
    std::vector<BesideRound> rounds;
};

enum class CopyDirection : std::uint8_t { device_to_host, host_to_device };
struct CopyCase {
    CopyDirection direction{};
    Bytes size;
    bool pinned = true;
};
struct CopyTimes {
    CopyCase copy;
    std::vector<double> copy_us;
};
/// So many copies in each direction, begun together: when the last of each direction ended.
struct DuplexRound {
    int copies = 0;
    double device_to_host_us = 0;
    double host_to_device_us = 0;
};
struct DuplexTimes {
    Bytes size;
    std::vector<DuplexRound> rounds;
};
/// Every visible device copying at once: the rate of each, 10^9 bytes a second.
struct SharedCopies {
    CopyDirection direction{};
    Bytes size;
    std::vector<double> gb_per_s;
};

enum class HostCall : std::uint8_t {
    kernel_launch,
    copy_to_host,
    copy_to_device,
    event_record,
    event_wait,
    event_query,
    synchronize,
    device_allocation_2_mib,
    device_allocation_20_mib,
    gemm_forward,
    gemm_input_gradient,
    gemm_weight_gradient,
    attention_forward,
    attention_backward,
};
inline constexpr std::size_t kHostCalls = 14;
constexpr std::size_t index(HostCall call) { return static_cast<std::size_t>(call); }

/// Kernels one after another, `branches` - 1 forked copies beside them.
struct GraphShape {
    int kernels = 1;
    int branches = 1;
    friend bool operator==(const GraphShape&, const GraphShape&) = default;
};
struct GraphLaunches {
    GraphShape shape;
    std::vector<double> launch_us;
};
/// So many graphs, all kept. Branches are of kernels here.
struct GraphStock {
    GraphShape shape;
    int graphs = 0;
    Bytes taken;                ///< of device memory
    double instantiate_us = 0;  ///< of one graph
};

/// A run of empty kernels that fill the device, one after another, the host far ahead.
struct EmptyKernels {
    int kernels = 0;
    bool in_graph = false;
    std::vector<double> total_us;
};

/// Device memory that is gone after each step of starting up.
struct MemoryUse {
    Bytes context;    ///< total less free, once there is a context: others' use of the device is in it
    Bytes kernels;    ///< stowage's own, loaded
    Bytes gemms;      ///< cuBLASLt, after its first products; the chosen algorithms' kernels too
    Bytes attention;  ///< cuDNN with its plans
    Bytes free;       ///< what is left then
};

struct Phase {
    std::string name;
    double seconds = 0;
};

struct Measurements {
    Machine machine;
    MemoryUse memory;
    std::vector<double> pinned_allocation_us_per_gib;
    std::vector<CopyTimes> copies;
    std::vector<DuplexTimes> duplex;
    std::vector<SharedCopies> shared_copies;  ///< none with one device
    std::array<std::vector<double>, kHostCalls> host_calls;
    std::int64_t launch_queue_depth = 0;
    std::vector<GraphLaunches> graph_launches;
    std::vector<GraphStock> graph_stocks;
    std::vector<EmptyKernels> empty_kernels;
    std::vector<KernelTimes> kernels;
    std::vector<MixTimes> mixes;
    std::vector<BesideTimes> beside_copies;
    std::vector<Phase> phases;
    std::vector<std::string> notes;  ///< what could not be measured, and why
};

}  // namespace stowage::calibrate
