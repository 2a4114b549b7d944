#include "cli/outputs.hpp"

#include <fmt/format.h>

#include "reports/trace.hpp"

namespace stowage::cli {

Outputs::Outputs(const CommonOptions& common, const std::optional<std::string>& document,
                 const std::optional<std::string>& trace)
    : common_(common), document_path_(document), trace_path_(trace) {
    if (document && trace && *document == *trace) throw CommandLineError("--out and --trace name the same file");
    if (document) document_.emplace(*document);
    if (trace) trace_.emplace(*trace);
}

void Outputs::write_document(const reports::Json& document) {
    if (!document_) return;
    document_->write(reports::to_text(document));
    document_->commit();
    say(common_, "wrote " + *document_path_);
}

void Outputs::write_trace(const search::Job& job, const types::OffloadChoice& choice) {
    if (!trace_) return;
    const search::TracedOutcome traced = search::evaluate_traced(job, choice);
    const reports::TraceSize size = reports::write_trace(traced, *trace_);
    trace_->commit();
    say(common_, fmt::format("wrote {}: a later step, {} events, {:.1f} MiB", *trace_path_, size.events,
                             types::in_mib(size.bytes)));
    if (size.left_out > 0)
        say(common_, fmt::format("the trace holds the first {} slices of each rank; {} later events are left out",
                                 reports::kMostTraceEvents, size.left_out));
}

}  // namespace stowage::cli
