#include <cmath>

#include "reports/comparison.hpp"
#include "reports/version.hpp"

namespace stowage::reports {
namespace {

constexpr std::size_t kContributionsKept = 20;
constexpr std::size_t kLabelsOfARun = 5;

/// Bytes are whole, times have three decimals at most.
Json value(const std::optional<double>& number) {
    if (!number) return nullptr;
    if (*number == std::floor(*number)) return static_cast<std::int64_t>(*number);
    return std::round(*number * 1e3) / 1e3;
}

Json fraction(const std::optional<double>& number) { return number ? Json(*number) : Json(nullptr); }

Json row_json(const ComparedRun& run, const ComparedQuantity& quantity) {
    return {{"name", run.name},
            {"quantity", quantity.name},
            {"predicted", value(quantity.predicted[0])},
            {"measured", value(quantity.measured)},
            {"error", fraction(quantity.error(Column::hardware))},
            {"predicted_from_recording", value(quantity.predicted[1])},
            {"error_from_recording", fraction(quantity.error(Column::recording))}};
}

Json summary_json(const ErrorSummary& summary) {
    if (summary.rows == 0) return nullptr;
    return {{"rows", summary.rows},
            {"mean_abs_error", summary.mean},
            {"median_abs_error", summary.median},
            {"p90_abs_error", summary.p90},
            {"max_abs_error", summary.max},
            {"within_1_percent", summary.within_1_percent},
            {"within_5_percent", summary.within_5_percent}};
}

Json summaries_json(const Comparison& comparison) {
    Json json = Json::object();
    for (const std::string& quantity : quantities_of(comparison)) {
        Json both = summary_json(summary_of(comparison, quantity, Column::hardware));
        if (both.is_null()) both = Json{{"rows", 0}};
        both["from_recording"] = summary_json(summary_of(comparison, quantity, Column::recording));
        json[quantity] = both;
    }
    return json;
}

Json pairs_json(const Comparison& comparison, Column column) {
    const PairCount count = count_pairs(comparison, column);
    Json wrong = Json::array();
    for (const WrongPair& pair : count.wrong)
        wrong.push_back({{"predicted_faster", pair.faster},
                         {"predicted_slower", pair.slower},
                         {"predicted_ratio", pair.predicted},
                         {"measured_ratio", pair.measured}});
    return {{"pairs", count.pairs}, {"wrong", wrong}};
}

Json contributions_json(const Comparison& comparison, Column column) {
    Json list = Json::array();
    for (const Contribution& one : contributions(comparison, column)) {
        if (list.size() == kContributionsKept) break;
        list.push_back({{"label", one.label},
                        {"share_of_time", one.share},
                        {"error_of_time", one.error},
                        {"largest_of_a_step", one.largest},
                        {"largest_in", one.largest_in}});
    }
    return list;
}

/// The labels that are furthest off in one run.
Json worst_labels(const ComparedRun& run, Column column) {
    Comparison alone;
    alone.runs.push_back(run);
    Json list = Json::array();
    for (const Contribution& one : contributions(alone, column)) {
        if (list.size() == kLabelsOfARun) break;
        list.push_back({{"label", one.label}, {"error_of_step", one.error}});
    }
    return list;
}

Json run_json(const ComparedRun& run) {
    return {{"name", run.name},
            {"slice", run.slice},
            {"rank", run.rank},
            {"policy", run.policy},
            {"allocator", run.allocator},
            {"graphs", run.graphs},
            {"furthest_off", worst_labels(run, Column::hardware)},
            {"furthest_off_from_recording", worst_labels(run, Column::recording)}};
}

Json left_out_json(const std::vector<LeftOutRun>& runs) {
    Json list = Json::array();
    for (const LeftOutRun& run : runs) list.push_back({{"name", run.name}, {"reason", run.reason}});
    return list;
}

Json bars_json(const Comparison& comparison) {
    Json list = Json::array();
    for (const JudgedBar& judged : judge(comparison))
        list.push_back({{"bar", judged.bar.text}, {"value", fraction(judged.value)}, {"met", judged.met()}});
    return list;
}

}  // namespace

Json comparison_json(const Comparison& comparison) {
    Json json;
    json["schema"] = "stowage/comparison/1";
    json["stowage_version"] = kVersion;
    json["machine"] = comparison.machine ? Json(comparison.machine->device) : Json(nullptr);
    json["hardware"] = comparison.hardware;
    json["summary"] = summaries_json(comparison);
    for (const Column column : {Column::hardware, Column::recording}) {
        const std::string suffix = column == Column::hardware ? "" : "_from_recording";
        json["pairs" + suffix] = pairs_json(comparison, column);
        json["contributions" + suffix] = contributions_json(comparison, column);
    }
    json["bars"] = bars_json(comparison);
    json["failed"] = left_out_json(comparison.failed);
    json["not_measured"] = left_out_json(comparison.not_measured);
    json["runs"] = Json::array();
    for (const ComparedRun& run : comparison.runs) json["runs"].push_back(run_json(run));
    json["rows"] = Json::array();
    for (const ComparedRun& run : comparison.runs)
        for (const ComparedQuantity& quantity : run.quantities) json["rows"].push_back(row_json(run, quantity));
    return json;
}

}  // namespace stowage::reports
