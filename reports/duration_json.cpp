#include "reports/duration_json.hpp"

#include "planner/program/duration_shares.hpp"
#include "planner/search/recording_use.hpp"

namespace stowage::reports {
namespace {

using layers::DurationSource;
using program::DurationShares;
using program::DurationSum;

template <class Value>
Json known(const std::optional<Value>& value) {
    return value ? Json(*value) : Json(nullptr);
}

double share(types::Nanoseconds part, types::Nanoseconds whole) {
    return whole.count() > 0 ? static_cast<double>(part.count()) / static_cast<double>(whole.count()) : 0;
}

Json recording_json(const search::RecordingUse& use) {
    return {{"scenario", use.scenario},
            {"pipeline_rank", use.pipeline_rank},
            {"device", use.device},
            {"same_device", use.same_device},
            {"layers", use.recorded_layers},
            {"steps", use.steps},
            {"kernels", use.kernels},
            {"gap_us", file_microseconds(use.gap)},
            {"stamping_us", file_microseconds(use.stamping)},
            {"recording_cost", known(use.recording_cost)}};
}

Json shares_json(const DurationSum& sum) {
    Json json = Json::object();
    for (const auto& [source, name] : types::enum_names<DurationSource>())
        json[std::string(name)] = share(sum.by_source[static_cast<std::size_t>(source)], sum.total());
    return json;
}

Json modules_json(const DurationShares& shares) {
    Json list = Json::array();
    for (const auto& [part, sum] : shares.by_part)
        list.push_back({{"module", std::string(name_of(part))},
                        {"time_us", file_microseconds(sum.total())},
                        {"share", share(sum.total(), shares.all.total())},
                        {"worst", std::string(types::name_of(sum.worst))},
                        {"error", known(sum.worst_error)}});
    return list;
}

Json classes_json(const search::RecordingUse& use) {
    Json json = Json::object();
    for (const auto& [kind, spread] : use.spreads)
        json[std::string(types::name_of(kind))] = {{"kernels", spread.kernels},
                                                   {"measured_over_estimated", spread.ratio},
                                                   {"spread", known(spread.spread)},
                                                   {"distance", known(spread.distance)}};
    return json;
}

Json sizes_json(const std::vector<types::Bytes>& sizes) {
    Json list = Json::array();
    for (const types::Bytes size : sizes) list.push_back(size.count);
    return list;
}

Json groups_json(const search::RecordingUse& use) {
    Json list = Json::array();
    for (const layers::GroupDifference& difference : use.groups)
        list.push_back({{"module", difference.module},
                        {"layers", difference.layers},
                        {"only_recorded_bytes", sizes_json(difference.recorded)},
                        {"only_planned_bytes", sizes_json(difference.planned)},
                        {"more_bytes", difference.more().count}});
    return list;
}

struct BusiestRank {
    std::int64_t pipeline_rank = 0;
    DurationShares shares;
};

BusiestRank busiest_rank(const search::Job& job) {
    const program::Durations durations(job.scenario.hardware, job.scenario.parallel);
    BusiestRank busiest;
    for (const layers::StageLayers& stage : job.stages) {
        DurationShares shares = program::duration_shares(stage, job.scenario.microbatches(), durations);
        if (shares.all.total() > busiest.shares.all.total()) busiest = {stage.pipeline_rank, std::move(shares)};
    }
    return busiest;
}

/// Nothing if some kernel's error is not known.
std::optional<double> step_time_error(const DurationSum& sum, const search::Outcome& outcome) {
    if (sum.unknown.count() > 0) return std::nullopt;
    return share(sum.uncertain, outcome.step_time);
}

}  // namespace

void add_durations(Json& document, const search::Job& job, const search::Outcome* outcome) {
    if (!job.recording) return;
    const search::RecordingUse& use = *job.recording;
    const BusiestRank busiest = busiest_rank(job);
    const DurationSum& all = busiest.shares.all;
    if (outcome != nullptr && outcome->runs())
        document["predicted"]["step_time_error"] = known(step_time_error(all, *outcome));
    if (use.recorded_layers > 0) document["implementation"] = "recorded";
    document["durations"] = {{"recording", recording_json(use)},
                             {"pipeline_rank", busiest.pipeline_rank},
                             {"compute_us", file_microseconds(all.total())},
                             {"shares", shares_json(all)},
                             {"error", known(all.error())},
                             {"error_unknown", share(all.unknown, all.total())},
                             {"modules", modules_json(busiest.shares)},
                             {"classes", classes_json(use)},
                             {"operations_that_differ", use.differences},
                             {"tensor_groups_that_differ", groups_json(use)}};
    for (const layers::GroupDifference& difference : use.groups)
        document["notes"].push_back("recording: " + layers::words_of(difference));
}

}  // namespace stowage::reports
