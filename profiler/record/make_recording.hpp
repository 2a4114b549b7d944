#pragma once

// From what was seen of a few steps to a recording: whose time every activity was, and what each module keeps for its
// backward. It sees marks, memory events and activities, and nothing else.
//
// Worked example: kernels issued under operations 7 (mark: core_attn, forward, layer 0) and 9 (mlp_fc1, forward, layer
// 0) with correlations 100, 101 and 103: two sites, operations 0, 0 and 1. Operation numbers of the file count what was
// issued, so that a step of another run of the same work has the same numbers.
//
// Tested by: tests/profiler/record/.

#include <cstddef>
#include <vector>

#include "profiler/cupti/raw_events.hpp"
#include "scenarios/recording/recording.hpp"

namespace stowage::profiler {

struct RecordingLimits {
    /// Steps are taken in the order given; one that would bring more events than this in all is left out, except the
    /// first with more than copies. 60,000 events are a file of less than 1 MiB.
    std::size_t most_events = 60'000;
};

/// `header`: what a recording says besides its steps; its sites, names, groups and steps are overwritten.
/// Groups are those of the first step of stage `record` with memory events; without one, of the first step with any.
/// A record step gives only its copies if there is another step: its kernels are those of the others.
/// Of a node of a graph, layer, microbatch and chunk are those of the launch where its mark names them, since one
/// capture may be launched for every microbatch.
/// Cost: O(N log N) in the activities and memory events.
recording::Recording make_recording(const std::vector<RawStep>& steps, recording::Recording header,
                                    const RecordingLimits& limits = {});

}  // namespace stowage::profiler
