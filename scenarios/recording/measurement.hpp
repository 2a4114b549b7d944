#pragma once

// What executing a step program on a GPU gave: the artifact that `execute` writes and `report` and `validate` read.
//
// Times are whole nanoseconds. A step's time is measured twice: between events on the main stream, and by the host's
// clock from the first call of the step until the device is idle, steps back to back.
//
// Tested by: tests/reports/measurement_json_test.cpp.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/types/bytes.hpp"
#include "scenarios/types/module.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::recording {

using types::Bytes;
using types::Nanoseconds;

/// What the measurement was made on.
struct Machine {
    std::string device;
    std::string driver;  ///< the newest CUDA that it runs
    std::string runtime;
    std::string cublaslt;
    std::string cudnn;
    int multiprocessors = 0;
    Bytes memory;
};

/// The device at one moment of the run; what the driver does not say is absent.
struct DeviceSample {
    std::string when;  ///< before, warm, timed, after
    std::optional<unsigned> sm_clock_mhz;
    std::optional<unsigned> memory_clock_mhz;
    std::optional<double> power_watts;
    std::optional<unsigned> temperature_celsius;
    std::vector<std::string> throttle_reasons;
};

/// One stage of the run, in the order in which they happened.
struct StageMemory {
    std::string stage;  ///< setup, record, eager, capture, steady
    Bytes peak_allocated;
    Bytes peak_reserved;
    Bytes driver_used;  ///< of the device, over what was in use before the run, at the stage's end
    std::int64_t device_calls = 0;
};

/// What all operations of one label took in one profiled step.
struct LabelTime {
    std::string label;
    std::string stream;
    std::int64_t operations = 0;
    std::int64_t kernels = 0;
    Nanoseconds busy{0};
    Nanoseconds predicted{0};  ///< what the program says they take alone
};

struct CopyTime {
    Bytes bytes;              ///< in one step
    Nanoseconds busy{0};      ///< sum of the copies' times
    double largest_rate = 0;  ///< bytes a second over the copies of 16 MiB and more; 0: there is none
};

/// One profiled step.
struct Profile {
    Nanoseconds duration{0};  ///< from the first operation's start to the last one's end
    Nanoseconds main_busy{0};
    Nanoseconds exposed_copy{0};    ///< a copy runs, and neither a kernel on the main stream nor a modelled wait
    Nanoseconds modelled_waits{0};  ///< delays that stand for other ranks, while nothing computes
    CopyTime device_to_host;
    CopyTime host_to_device;
    std::int64_t dropped_records = 0;
    std::int64_t unmatched_records = 0;
    std::vector<LabelTime> labels;
};

/// The host's time in all calls of one kind, over the steps that were issued to an idle device.
struct HostCall {
    std::string name;
    std::int64_t calls = 0;
    Nanoseconds time{0};
};

/// A 64-bit digest of a buffer's bits.
struct Digest {
    std::string name;
    std::uint64_t value = 0;
};

struct Measurement {
    std::string scenario;
    std::string implementation;
    std::int64_t pipeline_rank = 0;
    std::string policy;
    std::string allocator;
    std::string graphs;  ///< none, or the implementation and scope
    Machine machine;
    std::int64_t warmup_steps = 0;
    std::vector<Nanoseconds> event_times;  ///< by timed step
    std::vector<Nanoseconds> wall_times;
    std::vector<Nanoseconds> launch_times;  ///< of the host, until a step was issued to an idle device; other steps
    std::vector<HostCall> host_calls;
    std::vector<DeviceSample> samples;
    std::vector<StageMemory> memory;
    Bytes steady_peak_allocated;
    Bytes steady_peak_reserved;
    Bytes pinned;
    std::string pinned_placement;
    std::int64_t graphs_captured = 0;
    std::int64_t graph_nodes = 0;
    std::int64_t graph_launches = 0;  ///< in a step
    std::vector<double> losses;       ///< of the last step, by microbatch
    std::vector<Digest> digests;      ///< of the last step: losses, then every gradient
    std::uint64_t run_digest = 0;     ///< over losses and gradients of all steps
    std::int64_t digested_steps = 0;
    std::int64_t allocator_answers = 0;  ///< event queries that the allocator asked
    /// Those up to the end of the last timed step, in their order: whether the event was done. With them the memory of
    /// every stage can be walked again and comes out the same.
    std::vector<bool> event_answers;
    std::optional<Profile> profile;
};

/// The value in the middle; of an even number the lower one. Zero of none.
Nanoseconds median(std::vector<Nanoseconds> times);

}  // namespace stowage::recording
