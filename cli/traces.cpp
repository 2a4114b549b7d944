#include "cli/traces.hpp"

#include <fmt/format.h>

#include "reports/output_file.hpp"
#include "reports/trace.hpp"

namespace stowage::cli {

void write_trace_file(const CommonOptions& common, const search::Job& job, const types::OffloadChoice& choice,
                      const std::string& path) {
    reports::OutputFile file(path);
    const search::TracedOutcome traced = search::evaluate_traced(job, choice);
    const reports::TraceSize size = reports::write_trace(traced, file);
    file.commit();
    say(common, fmt::format("wrote the trace of a later step to {}: {} events, {:.1f} MiB", path, size.events,
                            types::in_mib(size.bytes)));
    if (size.left_out > 0)
        say(common, fmt::format("the trace holds the first {} events of each rank; {} later ones are left out",
                                reports::kMostTraceEvents, size.left_out));
}

}  // namespace stowage::cli
