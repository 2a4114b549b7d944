#pragma once

#include <optional>
#include <string>

#include "cli/verb.hpp"
#include "planner/search/job.hpp"
#include "reports/json.hpp"
#include "reports/output_file.hpp"

namespace stowage::cli {

/// Throws: CommandLineError if `output`, the value of `option`, is the file that the verb read.
void refuse_to_replace(const std::string& input, const std::string& option, const std::string& output);

/// The files that a verb was asked to write. Opened before the work begins, so that a place that cannot be written is
/// told at once, and put in place when they are whole.
class Outputs {
public:
    /// `input` is the file that the verb read. Throws: types::InputError if a file cannot be made; CommandLineError if
    /// two of the three are the same.
    Outputs(const CommonOptions& common, const std::string& input, const std::optional<std::string>& document,
            const std::optional<std::string>& trace);

    void write_document(const reports::Json& document);
    /// Simulates the choice once more, keeping its timeline, and writes that for a trace viewer.
    void write_trace(const search::Job& job, const types::OffloadChoice& choice);
    /// What was traced, `what` in words.
    void write_trace(const search::TracedOutcome& traced, const std::string& what);

private:
    const CommonOptions& common_;
    std::optional<std::string> document_path_;
    std::optional<std::string> trace_path_;
    std::optional<reports::OutputFile> document_;
    std::optional<reports::OutputFile> trace_;
};

}  // namespace stowage::cli
