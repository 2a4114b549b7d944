#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/json.hpp"

namespace stowage::reports {

/// A prediction beside what was measured.
struct ValidationRow {
    std::string name;
    std::string gpu;
    std::int64_t gpus = 0;
    std::string quantity;  ///< allocated_bytes or peak_allocated_bytes
    std::int64_t predicted = 0;
    std::int64_t measured = 0;

    /// predicted / measured - 1.
    [[nodiscard]] double error() const { return static_cast<double>(predicted) / static_cast<double>(measured) - 1; }
};

/// A run that is not predicted, and the features of it that the model lacks.
struct RefusedRun {
    std::string name;
    std::string gpu;
    std::int64_t gpus = 0;
    std::vector<std::string> missing;
};

/// Where the predicted bytes of a run lie, on the logging rank.
struct MemoryParts {
    struct State {
        std::string what;
        std::int64_t bytes = 0;
    };
    struct Layer {
        std::string name;
        std::int64_t frames = 0;  ///< of one microbatch on the rank
        std::int64_t saved = 0;   ///< bytes that the forward of one leaves for the backward
    };
    std::string name;
    std::string gpu;
    std::int64_t gpus = 0;
    std::vector<State> between_steps;
    std::int64_t rounding = 0;  ///< what the allocator's blocks are larger than was asked for, between steps
    std::vector<Layer> layers;
    std::int64_t within_step = 0;  ///< from between steps to the peak
};

struct Validation {
    std::string table;  ///< the file
    std::vector<ValidationRow> rows;
    std::vector<RefusedRun> refused;
    std::vector<MemoryParts> parts = {};  ///< of the runs that were asked for
};

/// How far a set of predictions is off. Fractions of 1.
struct ErrorSummary {
    std::int64_t rows = 0;
    double mean = 0;    ///< of the absolute errors, as the others
    double median = 0;  ///< of the absolute errors: the middle one, or the mean of the two in the middle
    double p90 = 0;     ///< nearest rank: the smallest error that at least 90 % of the rows do not exceed
    double max = 0;
    double within_1_percent = 0;  ///< share of the rows
    double within_5_percent = 0;
};
/// Zeros for no errors. Cost: O(n log n).
ErrorSummary summarize(std::vector<double> errors);

/// Schema stowage/validation/1: `rows` with `name`, `gpu`, `gpus`, `quantity`, `predicted`, `measured` and `error`;
/// `refused` with `name`, `gpu`, `gpus` and `missing`; `summary` keyed by quantity: `rows`, `median_abs_error`,
/// `p90_abs_error`, `max_abs_error`, `within_1_percent`, `within_5_percent`; `parts` of the runs that were asked for.
/// Bytes.
Json validation_json(const Validation& validation);

/// The same for a terminal: a line for each run, what was refused by feature, the parts of the runs that were asked
/// for, and the summary.
std::string validation_text(const Validation& validation);

}  // namespace stowage::reports
