#pragma once

#include <cstdint>

#include "planner/search/job.hpp"
#include "reports/output_file.hpp"

namespace stowage::reports {

/// Slices of one rank that a trace holds at most; more make viewers slow.
inline constexpr std::int64_t kMostTraceEvents = 400'000;

struct TraceSize {
    std::int64_t events = 0;
    types::Bytes bytes;
    std::int64_t left_out = 0;  ///< slices and memory samples after the last one held, over all ranks
};

/// Writes a simulated step in the trace event format that ui.perfetto.dev and chrome://tracing open: a process for each
/// pipeline rank, a thread for each stream, counters of allocated, reserved and pinned bytes, an arrow from the last
/// copy of an offloaded group to the first of its reload. A graph's nodes are on the streams where they ran, under the
/// microbatch that launched it; beside them each launch is a slice on a track of its own, from the first node to the
/// last, with an instant where the graph lets the main stream go on. Times in microseconds from the start of the step.
/// Memory is as the host sees it, which runs ahead of the device. Written as it goes, without a document in memory.
/// Does not commit the file. Source: "Trace Event Format", Google, 2016 (ph X, C, M, i, s, f).
TraceSize write_trace(const search::TracedOutcome& traced, OutputFile& file);

}  // namespace stowage::reports
