#pragma once

// Predicted against measured, over many configurations: what `validate` answers.
//
// Each quantity has up to two predictions: from the hardware file alone, and from one eager recording of the slice in
// which nothing was offloaded. An error is predicted / measured - 1, except that exposed copies, which may be nothing
// at all, are held against the step: (predicted - measured) / step.
//
// Tested by: tests/reports/comparison_test.cpp.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/json.hpp"
#include "reports/validation.hpp"
#include "scenarios/recording/measurement.hpp"

namespace stowage::reports {

/// Where a prediction's durations come from.
enum class Column : std::uint8_t { hardware, recording };
inline constexpr std::size_t kColumns = 2;
const char* name_of(Column column);

struct ComparedQuantity {
    std::string name;  ///< with its unit: step_time_us, driver_bytes
    std::optional<double> measured;
    std::array<std::optional<double>, kColumns> predicted;
    std::optional<double> relative_to;  ///< what the error is a fraction of; absent: what was measured

    /// Nothing where a side is missing. 1 where something is predicted and nothing was measured.
    [[nodiscard]] std::optional<double> error(Column column) const;
};

/// What the operations of one label took in one step, in microseconds.
struct ComparedLabel {
    std::string label;
    double measured = 0;
    std::array<std::optional<double>, kColumns> predicted;
};

struct ComparedRun {
    std::string name;
    std::string slice;  ///< runs of one slice differ in what is offloaded and captured only
    std::int64_t rank = 0;
    std::string policy;
    std::string allocator;
    std::string graphs;
    std::vector<ComparedQuantity> quantities;
    std::vector<ComparedLabel> labels;
    std::string recording_problem = {};  ///< why there is no second column, if a recording could not be used

    [[nodiscard]] const ComparedQuantity* find(const std::string& quantity) const;
};

/// A configuration without a comparison, and why.
struct LeftOutRun {
    std::string name;
    std::string reason;
};

/// A limit on what a summary may say: `hardware.step_time_us.mean=0.05`, or on pairs: `recording.pairs.wrong=0`.
struct Bar {
    std::string text;
    Column column{};
    std::string quantity;
    std::string statistic;  ///< mean, median, p90, max; of pairs: wrong
    double limit = 0;
};
/// Nothing if the text is none.
std::optional<Bar> parse_bar(const std::string& text);

struct Comparison {
    std::vector<ComparedRun> runs;
    std::vector<LeftOutRun> failed;
    std::vector<LeftOutRun> not_measured;
    std::vector<Bar> bars;
    std::optional<recording::Machine> machine;  ///< of the first measurement
    std::string hardware;                       ///< what column hardware was predicted from
    std::string date;                           ///< as it was given; may be empty
    std::string command;                        ///< that makes this
};

/// Two plans of one slice that are predicted more than 2 % apart, and the one that is predicted faster is slower.
struct WrongPair {
    std::string faster;  ///< as predicted
    std::string slower;
    double predicted = 0;  ///< times of `faster` over those of `slower`
    double measured = 0;
};
struct PairCount {
    std::int64_t pairs = 0;  ///< that are far enough apart to tell
    std::vector<WrongPair> wrong;
};
/// Of all pairs of runs of each slice.
PairCount count_pairs(const Comparison& comparison, Column column);

/// Quantities in the order in which they first occur.
std::vector<std::string> quantities_of(const Comparison& comparison);
ErrorSummary summary_of(const Comparison& comparison, const std::string& quantity, Column column);

/// What a bar asks about and what there is: nothing if no row has it.
struct JudgedBar {
    Bar bar;
    std::optional<double> value;
    [[nodiscard]] bool met() const { return value && *value <= bar.limit; }
};
std::vector<JudgedBar> judge(const Comparison& comparison);

/// How much of the error of all steps lies in operations of one label, as fractions of the steps' time.
struct Contribution {
    std::string label;
    double share = 0;        ///< of the measured time
    double error = 0;        ///< (predicted - measured) over all steps' time
    double largest = 0;      ///< of one run, over its step
    std::string largest_in;  ///< that run
};
/// Largest first. Empty if the column predicted nothing.
std::vector<Contribution> contributions(const Comparison& comparison, Column column);

/// Schema stowage/comparison/1: `rows[]` with `name`, `quantity`, `predicted`, `measured`, `error` (of column
/// hardware), `predicted_from_recording`, `error_from_recording`; `summary` keyed by quantity; `pairs`, `bars`,
/// `contributions`, `failed`, `not_measured`.
Json comparison_json(const Comparison& comparison);
/// For a terminal.
std::string comparison_text(const Comparison& comparison);
/// A page for docs/measurements: the same comparison is the same bytes.
std::string comparison_page(const Comparison& comparison);

}  // namespace stowage::reports
