#pragma once

// What a recording is made from: marks, allocator events, and what CUPTI recorded, step by step.
//
// Whoever issues work says whose it is: in this process by numbers, which the recorder pushes as external correlation
// ids and which `RawStep::marks` resolves; elsewhere by NVTX ranges whose names are marks in text form, such as
//     stowage:module=core_attn;phase=forward;layer=3;microbatch=0;chunk=0;work=attention
// Fields that are not known are left out; a range inside a range fills in what the outer one leaves open.
//
// Tested by: tests/profiler/cupti/raw_events_test.cpp.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/cupti/activity.hpp"
#include "scenarios/types/bytes.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::profiler {

struct Mark {
    std::string module;
    std::string phase;
    std::string work;
    std::int32_t layer = -1;
    std::int32_t microbatch = -1;
    std::int32_t chunk = -1;
    friend bool operator==(const Mark&, const Mark&) = default;
};

/// "stowage:" and the known fields, in the order above.
std::string text_of(const Mark& mark);
/// Nothing if the text does not begin with "stowage:"; fields that it does not know are passed over.
std::optional<Mark> mark_of(std::string_view text);

/// Something happened to a piece of device memory.
struct MemoryEvent {
    enum class Kind : std::uint8_t {
        allocate,
        free,
        save,       ///< kept for a backward by the module of the mark; where whoever runs the step can say so
        offloaded,  ///< a copy of it to the host was issued, for the module of the mark
    };
    Kind kind{};
    std::uint64_t address = 0;
    types::Bytes bytes;
    types::Nanoseconds time{};  ///< when the host did it, on CUPTI's clock
    OperationNumber issued_under = kNoOperation;
    friend bool operator==(const MemoryEvent&, const MemoryEvent&) = default;
};

/// One step of a run.
struct RawStep {
    std::string stage;  ///< record, eager, steady
    bool graphs = false;
    types::Nanoseconds time{};  ///< between events before and behind it on the main stream; 0: not timed
    Recording activities;
    std::vector<MemoryEvent> memory;  ///< in the order in which the host did it
    std::unordered_map<OperationNumber, Mark> marks;
};

}  // namespace stowage::profiler
