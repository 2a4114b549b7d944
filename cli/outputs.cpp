#include "cli/outputs.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "reports/trace.hpp"

namespace stowage::cli {

namespace {

/// Links followed, whether or not the file is there.
bool same_file(const std::string& left, const std::string& right) {
    std::error_code failed;
    const auto resolved = [&](const std::string& path) {  // a relative path to nothing would stay relative
        std::error_code stays;
        const auto absolute = std::filesystem::absolute(path, stays);
        return std::filesystem::weakly_canonical(stays ? std::filesystem::path(path) : absolute, failed);
    };
    const auto one = resolved(left);
    const auto other = resolved(right);
    return failed ? left == right : one == other;
}

}  // namespace

void refuse_to_replace(const std::string& input, const std::string& option, const std::string& output) {
    if (output.empty()) throw CommandLineError(option + ": found no name, expected a file to write");
    if (same_file(input, output)) throw CommandLineError(option + " would replace the file that is read: " + output);
}

Outputs::Outputs(const CommonOptions& common, const std::string& input, const std::optional<std::string>& document,
                 const std::optional<std::string>& trace)
    : common_(common), document_path_(document), trace_path_(trace) {
    if (document) refuse_to_replace(input, "--out", *document);
    if (trace) refuse_to_replace(input, "--trace", *trace);
    if (document && trace && same_file(*document, *trace))
        throw CommandLineError("--out and --trace name the same file");
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
    if (trace_) write_trace(search::evaluate_traced(job, choice), "a later step");
}

void Outputs::write_trace(const search::TracedOutcome& traced, const std::string& what) {
    if (!trace_) return;
    const reports::TraceSize size = reports::write_trace(traced, *trace_);
    trace_->commit();
    say(common_,
        fmt::format("wrote {}: {}, {} events, {:.1f} MiB", *trace_path_, what, size.events, types::in_mib(size.bytes)));
    if (size.left_out > 0)
        say(common_, fmt::format("the trace holds the first {} slices of each rank; {} later events are left out",
                                 reports::kMostTraceEvents, size.left_out));
}

}  // namespace stowage::cli
