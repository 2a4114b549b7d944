#pragma once

// Whose work it was, in a process that says so by NVTX: the marks of the ranges that were open when it was issued.
//
// A range counts if its name is a mark ("stowage:..."), and for what its thread does while it is open. Ranges may lie
// in each other: each field is that of the innermost range that has it. Eager work is issued by a call, whose thread
// and start count. Nodes of graphs count by the moment of their capture; what was open at the launch tells replays
// apart.
//
// Worked example: a thread opens "stowage:phase=forward;layer=3" at 10 and in it "stowage:module=core_attn" from 20 to
// 30. A kernel whose launch began at 25 is (core_attn, forward, layer 3) wherever and whenever it ran; one from 35 is
// (forward, layer 3); one that another thread launched at 25 is nobody's.
//
// Tested by: tests/profiler/cupti/range_marks_test.cpp, and on a device by recorder_kinds_gpu_test.cpp.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/cupti/raw_events.hpp"

namespace stowage::profiler {

/// Fields of `inner`, and of `outer` where `inner` leaves them open.
Mark inside(const Mark& outer, const Mark& inner);

/// A moment of a thread.
struct HostMoment {
    std::uint32_t thread = 0;  ///< 0: it is not known which; ranges of every thread count
    types::Nanoseconds time{};
};

/// For each moment, the mark of all ranges that are open then on its thread, one in the other; an empty mark if there
/// is none. A range whose thread CUPTI does not say is open on every thread. A range is open from its start on, and not
/// at its end. Cost: O((M + R) log (M + R)) and the depth of the ranges.
std::vector<Mark> marks_at(const Recording& recording, std::span<const HostMoment> moments);

/// The value of a field of a mark's text, which mark_of does not know; "" if it is not there.
/// Example: field_of("stowage:save;address=7f00;bytes=4096", "bytes") is "4096".
std::string_view field_of(std::string_view text, std::string_view key);

/// One step for each range whose name begins with "stowage:step", in their order, with what was issued in it by any
/// thread; its stage is that of the name ("stowage:step;stage=eager"). Without such ranges one step with everything, of
/// stage "".
///
/// Activities are issued under the correlation of their call, and nodes captured under a number for each captured node;
/// `marks` has those that a range covers. NVTX marks "stowage:save;address=HEX;bytes=N", and the same with allocate,
/// free and offloaded, become memory events; "time=N", in nanoseconds, is when it happened if not when it was said.
/// Needs calls, ranges and, for graphs, graph_nodes among the kinds.
std::vector<RawStep> steps_by_ranges(const Recording& recording);

}  // namespace stowage::profiler
