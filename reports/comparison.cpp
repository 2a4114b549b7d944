#include "reports/comparison.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

namespace stowage::reports {
namespace {

constexpr double kApart = 0.02;
constexpr const char* kStep = "step_time_us";

std::size_t index(Column column) { return static_cast<std::size_t>(column); }

std::optional<double> predicted_step(const ComparedRun& run, Column column) {
    const ComparedQuantity* const step = run.find(kStep);
    return step == nullptr ? std::nullopt : step->predicted[index(column)];
}

std::optional<double> measured_step(const ComparedRun& run) {
    const ComparedQuantity* const step = run.find(kStep);
    return step == nullptr ? std::nullopt : step->measured;
}

void count_pair(const ComparedRun& one, const ComparedRun& other, Column column, PairCount& count) {
    const auto first = predicted_step(one, column);
    const auto second = predicted_step(other, column);
    const auto first_measured = measured_step(one);
    const auto second_measured = measured_step(other);
    if (!first || !second || !first_measured || !second_measured) return;
    if (std::abs(*first - *second) <= kApart * std::min(*first, *second)) return;
    ++count.pairs;
    const bool first_is_faster = *first < *second;
    if (first_is_faster == (*first_measured < *second_measured) && *first_measured != *second_measured) return;
    const double predicted = *first / *second;
    const double measured = *first_measured / *second_measured;
    if (first_is_faster)
        count.wrong.push_back({one.name, other.name, predicted, measured});
    else
        count.wrong.push_back({other.name, one.name, 1 / predicted, 1 / measured});
}

std::optional<double> statistic_of(const Comparison& comparison, const Bar& bar) {
    if (bar.quantity == "pairs") return static_cast<double>(count_pairs(comparison, bar.column).wrong.size());
    const ErrorSummary summary = summary_of(comparison, bar.quantity, bar.column);
    if (summary.rows == 0) return std::nullopt;
    if (bar.statistic == "mean") return summary.mean;
    if (bar.statistic == "median") return summary.median;
    if (bar.statistic == "p90") return summary.p90;
    return summary.max;
}

bool is_statistic(const std::string& quantity, const std::string& word) {
    if (quantity == "pairs") return word == "wrong";
    return word == "mean" || word == "median" || word == "p90" || word == "max";
}

}  // namespace

const char* name_of(Column column) { return column == Column::hardware ? "hardware" : "recording"; }

std::optional<double> ComparedQuantity::error(Column column) const {
    const std::optional<double>& value = predicted[index(column)];
    if (!value || !measured) return std::nullopt;
    if (*value == *measured) return 0;
    const double scale = relative_to.value_or(*measured);
    return scale == 0 ? 1 : (*value - *measured) / scale;
}

const ComparedQuantity* ComparedRun::find(const std::string& quantity) const {
    const auto at = std::find_if(quantities.begin(), quantities.end(),
                                 [&](const ComparedQuantity& one) { return one.name == quantity; });
    return at == quantities.end() ? nullptr : &*at;
}

std::optional<Bar> parse_bar(const std::string& text) {
    const std::size_t column_end = text.find('.');
    const std::size_t equals = text.find('=');
    const std::size_t statistic_begin = text.rfind('.', equals);
    if (column_end == std::string::npos || equals == std::string::npos || statistic_begin <= column_end)
        return std::nullopt;
    Bar bar;
    bar.text = text;
    const std::string column = text.substr(0, column_end);
    if (column != "hardware" && column != "recording") return std::nullopt;
    bar.column = column == "hardware" ? Column::hardware : Column::recording;
    bar.quantity = text.substr(column_end + 1, statistic_begin - column_end - 1);
    bar.statistic = text.substr(statistic_begin + 1, equals - statistic_begin - 1);
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + equals + 1, end, bar.limit);
    const bool number = read.ec == std::errc{} && read.ptr == end && bar.limit >= 0;
    if (!number || bar.quantity.empty() || !is_statistic(bar.quantity, bar.statistic)) return std::nullopt;
    return bar;
}

PairCount count_pairs(const Comparison& comparison, Column column) {
    PairCount count;
    for (std::size_t one = 0; one < comparison.runs.size(); ++one)
        for (std::size_t other = one + 1; other < comparison.runs.size(); ++other)
            if (comparison.runs[one].slice == comparison.runs[other].slice)
                count_pair(comparison.runs[one], comparison.runs[other], column, count);
    return count;
}

std::vector<std::string> quantities_of(const Comparison& comparison) {
    std::vector<std::string> names;
    for (const ComparedRun& run : comparison.runs)
        for (const ComparedQuantity& quantity : run.quantities)
            if (std::find(names.begin(), names.end(), quantity.name) == names.end()) names.push_back(quantity.name);
    return names;
}

ErrorSummary summary_of(const Comparison& comparison, const std::string& quantity, Column column) {
    std::vector<double> errors;
    for (const ComparedRun& run : comparison.runs)
        if (const ComparedQuantity* const found = run.find(quantity))
            if (const auto error = found->error(column)) errors.push_back(*error);
    return summarize(std::move(errors));
}

std::vector<JudgedBar> judge(const Comparison& comparison) {
    std::vector<JudgedBar> judged;
    for (const Bar& bar : comparison.bars) judged.push_back({bar, statistic_of(comparison, bar)});
    return judged;
}

std::vector<Contribution> contributions(const Comparison& comparison, Column column) {
    std::map<std::string, Contribution> by_label;
    double all_steps = 0;
    for (const ComparedRun& run : comparison.runs) {
        const auto step = measured_step(run);
        if (!step || *step <= 0 || !predicted_step(run, column)) continue;
        all_steps += *step;
        for (const ComparedLabel& label : run.labels) {
            const auto& predicted = label.predicted[index(column)];
            if (!predicted) continue;
            Contribution& sum = by_label[label.label];
            sum.label = label.label;
            sum.share += label.measured;
            sum.error += *predicted - label.measured;
            const double of_step = (*predicted - label.measured) / *step;
            if (std::abs(of_step) < std::abs(sum.largest)) continue;
            sum.largest = of_step;
            sum.largest_in = run.name;
        }
    }
    std::vector<Contribution> sorted;
    for (auto& [label, sum] : by_label) {
        sum.share /= all_steps;
        sum.error /= all_steps;
        sorted.push_back(std::move(sum));
    }
    std::stable_sort(sorted.begin(), sorted.end(), [](const Contribution& left, const Contribution& right) {
        return std::abs(left.error) > std::abs(right.error);
    });
    return sorted;
}

}  // namespace stowage::reports
