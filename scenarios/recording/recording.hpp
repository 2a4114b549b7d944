#pragma once

// What a device did in a few steps of a training run, and what memory lived through them: the artifact that `profile`
// writes and `plan`, `simulate` and `validate` read.
//
// It is made from marks, allocator events and CUPTI's records alone; nothing in it comes from a scenario or a program.
// The scenario's text is carried along as a label, so that a reader can tell which sizes were recorded.
//
// Times are whole nanoseconds from the first activity of the step they belong to.
//
// Worked example, one layer of one microbatch: a kernel of 40 us at 10 us, issued inside the mark (qkv_linear, forward,
// "qkv", layer 0, microbatch 0): one site, one operation 0, one event {site 0, operation 0, layer 0, microbatch 0,
// kernel, start 10'000, duration 40'000}. Had cuBLASLt split the work over two kernels, both had operation 0.
//
// Tested by: tests/scenarios/recording/, tests/profiler/record/.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/recording/measurement.hpp"
#include "scenarios/types/bytes.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::recording {

/// Whose work it was, apart from layer and microbatch.
struct Site {
    std::string module;  ///< as plans name parts: qkv_linear, core_attn, expert_fc1, ...; "" where no mark says
    std::string phase;   ///< forward, backward, weight_gradient, recompute, optimizer; "" where no mark says
    std::string work;    ///< what of it, as the mark calls it; of injected recordings "": only modules are marked
    friend bool operator==(const Site&, const Site&) = default;
};

enum class EventKind : std::uint8_t { kernel, device_to_host, host_to_device, device_to_device, memset };

/// One activity of the device.
struct Event {
    std::uint32_t site = 0;       ///< index into Recording::sites
    std::uint32_t operation = 0;  ///< counts, in the step, what was issued; activities of one call share it
    std::int32_t layer = -1;      ///< of the model; -1: none
    std::int32_t microbatch = -1;
    EventKind kind{};
    std::uint32_t stream = 0;  ///< CUPTI's number
    std::uint32_t name = 0;    ///< of a kernel: index into Recording::names
    Nanoseconds start{0};
    Nanoseconds duration{0};
    Bytes bytes;  ///< of a copy or memset
    bool in_graph = false;
    friend bool operator==(const Event&, const Event&) = default;
};

/// One step, with its activities in the order of their starts.
struct Step {
    std::string stage;            ///< record, eager, steady
    bool graphs = false;          ///< parts of it were launched as graphs
    Nanoseconds duration{0};      ///< from its first activity to the end of its last
    Nanoseconds time{0};          ///< between events before and behind it, as `step_times` are; 0: not timed
    std::vector<Event> events;    ///< of a record step copies only, where another step was recorded
    std::uint64_t dropped = 0;    ///< records that were lost: the step is incomplete
    std::uint64_t unmatched = 0;  ///< activities that no mark covers; they are events of the empty site
};

/// One storage that was kept for a backward, or a part of it that was saved. Saved twice it stands here twice, under
/// one storage number.
struct Tensor {
    std::uint32_t storage = 0;  ///< the same number wherever the same storage is saved
    Bytes bytes;                ///< that were saved; what the whole storage has if nothing says so
    Bytes storage_bytes;        ///< as it was asked for
    Nanoseconds allocated{0};   ///< of the record step, as the host saw it; 0: before the step
    Nanoseconds freed{0};       ///< the step's end: not in the step
    bool offloaded = false;     ///< it was copied to the host
    bool parameter = false;     ///< it was there before the step and is there after it
    friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// What one module of one layer keeps for its backward in one chunk.
struct Group {
    std::string module;
    std::int32_t layer = -1;
    std::int32_t microbatch = -1;
    std::int32_t chunk = 0;  ///< virtual stage
    std::vector<Tensor> tensors;
    friend bool operator==(const Group&, const Group&) = default;
};

struct Recording {
    std::string source;          ///< stowage, injected
    std::string implementation;  ///< whose kernels these are: stowage, megatron, ...
    std::string scenario_name;
    std::string scenario_text;  ///< the file that was run, as it was; "" of an injected recording
    std::int64_t pipeline_rank = 0;
    Machine machine;
    std::vector<DeviceSample> samples;
    std::vector<Nanoseconds> step_times;  ///< of unrecorded steps, timed by events, before recording began
    std::vector<Site> sites;
    std::vector<std::string> names;
    std::vector<Group> groups;
    std::vector<Step> steps;
};

}  // namespace stowage::recording
