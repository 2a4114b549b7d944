#include <fmt/format.h>

#include "reports/comparison.hpp"
#include "reports/table.hpp"
#include "reports/units.hpp"

namespace stowage::reports {
namespace {

constexpr std::size_t kContributionsShown = 12;
constexpr std::size_t kPairsShown = 30;

std::string error_cell(const std::optional<double>& error) {
    return error ? fmt::format("{:+.2f} %", 100 * *error) : "-";
}
std::string fine_percent(double fraction) { return fmt::format("{:.2f} %", 100 * fraction); }

std::optional<double> error_of(const ComparedRun& run, const char* quantity, Column column) {
    const ComparedQuantity* const found = run.find(quantity);
    return found == nullptr ? std::nullopt : found->error(column);
}

std::string milliseconds_cell(const ComparedRun& run, bool measured, Column column = Column::hardware) {
    const ComparedQuantity* const step = run.find("step_time_us");
    if (step == nullptr) return "-";
    const auto& value = measured ? step->measured : step->predicted[static_cast<std::size_t>(column)];
    return value ? milliseconds(*value) : "-";
}

/// Of the allocator's own quantities the one that the run has.
std::string memory_cell(const ComparedRun& run, const char* what) {
    for (const char* allocator : {"planned", "caching"})
        if (const auto error = error_of(run, fmt::format("{}_bytes_{}", what, allocator).c_str(), Column::hardware))
            return error_cell(error);
    return "-";
}

/// In the order of the columns' headings.
std::vector<std::string> run_cells(const ComparedRun& run) {
    return {run.name,
            run.policy,
            run.graphs,
            milliseconds_cell(run, true),
            milliseconds_cell(run, false),
            error_cell(error_of(run, "step_time_us", Column::hardware)),
            error_cell(error_of(run, "step_time_us", Column::recording)),
            error_cell(error_of(run, "exposed_copy_us", Column::hardware)),
            memory_cell(run, "allocated"),
            memory_cell(run, "reserved"),
            error_cell(error_of(run, "driver_bytes", Column::hardware)),
            error_cell(error_of(run, "pinned_bytes", Column::hardware))};
}

std::vector<std::string> run_headings() {
    return {"configuration",  "policy",       "graphs", "measured ms", "predicted", "error",
            "from recording", "exposed copy", "alloc.", "reserved",    "driver",    "pinned"};
}

std::vector<std::string> summary_cells(const Comparison& comparison, const std::string& quantity, Column column) {
    const ErrorSummary summary = summary_of(comparison, quantity, column);
    return {quantity,
            name_of(column),
            std::to_string(summary.rows),
            fine_percent(summary.mean),
            fine_percent(summary.median),
            fine_percent(summary.p90),
            fine_percent(summary.max)};
}

std::vector<std::string> summary_headings() {
    return {"quantity", "from", "rows", "mean", "median", "90th", "largest"};
}

using Rows = std::vector<std::vector<std::string>>;

Rows summary_rows(const Comparison& comparison) {
    Rows rows;
    for (const std::string& quantity : quantities_of(comparison))
        for (const Column column : {Column::hardware, Column::recording})
            if (summary_of(comparison, quantity, column).rows > 0)
                rows.push_back(summary_cells(comparison, quantity, column));
    return rows;
}

Rows contribution_rows(const Comparison& comparison, Column column) {
    Rows rows;
    for (const Contribution& one : contributions(comparison, column)) {
        if (rows.size() == kContributionsShown) break;
        rows.push_back(
            {one.label, fine_percent(one.share), error_cell(one.error), error_cell(one.largest), one.largest_in});
    }
    return rows;
}

std::vector<std::string> contribution_headings() { return {"operations", "of the time", "error", "largest", "in"}; }

Rows bar_rows(const Comparison& comparison) {
    Rows rows;
    for (const JudgedBar& judged : judge(comparison))
        rows.push_back({judged.bar.text, judged.value ? fmt::format("{:.5g}", *judged.value) : "no such row",
                        judged.met() ? "met" : "missed"});
    return rows;
}

/// The first `left` columns hold words.
std::string plain_table(const std::vector<std::string>& headings, const Rows& rows, std::size_t left) {
    std::vector<Table::Column> columns;
    for (std::size_t i = 0; i < headings.size(); ++i)
        columns.push_back({headings[i], i < left ? Table::Align::left : Table::Align::right});
    Table table(std::move(columns));
    for (const auto& row : rows) table.add(row);
    return table.text();
}

std::string page_row(const std::vector<std::string>& cells) {
    std::string text = "|";
    for (const std::string& cell : cells) text += " " + cell + " |";
    return text + "\n";
}

std::string page_table(const std::vector<std::string>& headings, const Rows& rows, std::size_t left) {
    std::string text = page_row(headings) + "|";
    for (std::size_t i = 0; i < headings.size(); ++i) text += i < left ? "---|" : "---:|";
    text += "\n";
    for (const auto& row : rows) text += page_row(row);
    return text;
}

std::string pairs_line(const Comparison& comparison, Column column) {
    const PairCount count = count_pairs(comparison, column);
    std::string text = fmt::format(
        "From the {}: of {} pairs of plans of one slice predicted more than 2 % apart, {} in the wrong order.\n",
        name_of(column), count.pairs, count.wrong.size());
    for (std::size_t i = 0; i < std::min(count.wrong.size(), kPairsShown); ++i) {
        const WrongPair& pair = count.wrong[i];
        text += fmt::format("- {} before {}: predicted {:.3f} of its time, measured {:.3f}\n", pair.faster, pair.slower,
                            pair.predicted, pair.measured);
    }
    if (count.wrong.size() > kPairsShown) text += fmt::format("- and {} more\n", count.wrong.size() - kPairsShown);
    return text;
}

bool predicts(const Comparison& comparison, Column column) {
    return summary_of(comparison, "step_time_us", column).rows > 0;
}

std::string left_out(const char* heading, const std::vector<LeftOutRun>& runs) {
    std::string text;
    for (const LeftOutRun& run : runs) text += fmt::format("- {}: {}\n", run.name, run.reason);
    return text.empty() ? text : std::string(heading) + "\n" + text;
}

Rows rows_of(const Comparison& comparison, const std::string& slice) {
    Rows rows;
    for (const ComparedRun& run : comparison.runs)
        if (slice.empty() || run.slice == slice) rows.push_back(run_cells(run));
    return rows;
}

std::string machine_line(const Comparison& comparison) {
    if (!comparison.machine) return "";
    const recording::Machine& machine = *comparison.machine;
    return fmt::format("{}, driver for CUDA {}, runtime {}, cuBLASLt {}, cuDNN {}", machine.device, machine.driver,
                       machine.runtime, machine.cublaslt, machine.cudnn);
}

constexpr const char* kWhatColumns =
    "Error: predicted / measured - 1. Exposed copy: (predicted - measured) / step. Modelled waits for other ranks are "
    "taken out of both sides of the step.";

}  // namespace

std::string comparison_text(const Comparison& comparison) {
    std::string text = "Predicted beside measured\n";
    if (comparison.machine) text += "  " + machine_line(comparison) + "\n";
    if (!comparison.hardware.empty()) text += "  hardware: " + comparison.hardware + "\n";
    if (!comparison.runs.empty()) {
        text += plain_table(run_headings(), rows_of(comparison, ""), 3) + kWhatColumns + "\nErrors, absolute\n" +
                plain_table(summary_headings(), summary_rows(comparison), 2);
        for (const Column column : {Column::hardware, Column::recording}) {
            if (!predicts(comparison, column)) continue;
            text += pairs_line(comparison, column) +
                    fmt::format("Where the error lies, from the {}\n", name_of(column)) +
                    plain_table(contribution_headings(), contribution_rows(comparison, column), 1);
        }
    }
    if (!comparison.bars.empty()) text += "Bars\n" + plain_table({"bar", "value", ""}, bar_rows(comparison), 1);
    text += left_out("Failed", comparison.failed);
    return text + left_out("Not measured", comparison.not_measured);
}

std::string comparison_page(const Comparison& comparison) {
    std::string text = "# Predicted beside measured\n\n";
    if (!comparison.date.empty()) text += comparison.date + (comparison.machine ? ", " : "\n");
    if (comparison.machine) text += machine_line(comparison) + ".\n";
    text += fmt::format("{} configurations.", comparison.runs.size());
    if (!comparison.hardware.empty()) text += " Hardware: " + comparison.hardware + ".";
    text += "\n\n    " + comparison.command + "\n\n" + kWhatColumns + "\n\n## Errors\n\nAbsolute.\n\n" +
            page_table(summary_headings(), summary_rows(comparison), 2);
    if (!comparison.bars.empty())
        text += "\n## Bars\n\n" + page_table({"bar", "value", "verdict"}, bar_rows(comparison), 1);
    text += "\n## Order of plans\n\n";
    for (const Column column : {Column::hardware, Column::recording})
        if (predicts(comparison, column)) text += pairs_line(comparison, column) + "\n";
    text += "## Where the error lies\n";
    for (const Column column : {Column::hardware, Column::recording})
        if (predicts(comparison, column))
            text += fmt::format("\nFrom the {}; fractions of all steps' time.\n\n", name_of(column)) +
                    page_table(contribution_headings(), contribution_rows(comparison, column), 1);
    text += "\n## Configurations\n\n" + page_table(run_headings(), rows_of(comparison, ""), 3);
    if (!comparison.failed.empty()) text += "\n" + left_out("## Failed\n", comparison.failed);
    if (!comparison.not_measured.empty()) text += "\n" + left_out("## Not measured\n", comparison.not_measured);
    return text;
}

}  // namespace stowage::reports
