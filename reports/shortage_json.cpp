#include "reports/shortage_json.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/program/stream.hpp"
#include "reports/units.hpp"

namespace stowage::reports {
namespace {

std::string stage_words(program::RunStage stage) {
    switch (stage) {
        case program::RunStage::setup: return "before the first iteration";
        case program::RunStage::record: return "in the first iteration";
        case program::RunStage::eager: return "in an eager iteration";
        case program::RunStage::capture: return "in the capture";
        default: return "in a later iteration";
    }
}

std::string stream_name(const memory::FragmentationReport& report) {
    return std::string(program::name_of(static_cast<program::Stream>(report.stream)));
}

/// The allocator knows its streams by number.
std::string explanation(const memory::FragmentationReport& report) {
    std::string words = memory::explain(report);
    const std::string number = fmt::format("on stream {} ", report.stream);
    const std::size_t place = words.find(number);
    if (place != std::string::npos)
        words.replace(place, number.size(), fmt::format("on stream '{}' ", stream_name(report)));
    return words;
}

Json shortage_json(const memory::FragmentationReport& report) {
    return {{"request_bytes", report.request.count},
            {"stream", stream_name(report)},
            {"must_grow_by_bytes", report.growth.count},
            {"limit_bytes", report.limit.count},
            {"reserved_bytes", report.reserved.count},
            {"allocated_bytes", report.allocated.count},
            {"waiting_bytes", report.held.count},
            {"free_bytes", report.free.count},
            {"largest_free_block_bytes", report.largest_free.count},
            {"free_elsewhere_bytes", report.free_beside.count},
            {"private_pools_bytes", report.reserved_by_private_pools.count},
            {"free_in_private_pools_bytes", report.free_in_private_pools.count},
            {"explanation", explanation(report)}};
}

}  // namespace

Json at_limit_json(const search::Outcome& limited) {
    if (!limited.shortage) {
        std::int64_t flushes = 0;
        for (const search::RankOutcome& rank : limited.ranks) flushes = std::max(flushes, rank.cache_flushes);
        return {{"runs", true},
                {"step_time_us", file_microseconds(limited.step_time)},
                {"cache_flushes_per_step", flushes}};
    }
    return {{"runs", false},
            {"pipeline_rank", limited.short_rank},
            {"when", stage_words(limited.shortage->stage)},
            {"shortage", shortage_json(limited.shortage->report)}};
}

std::string at_limit_words(const Json& at_limit) {
    if (at_limit.at("runs").get<bool>())
        return fmt::format(
            "it runs all the same: a full device makes the allocator give its cache back, up to {} times "
            "a step on one rank; {} ms a step",
            at_limit.at("cache_flushes_per_step").dump(), milliseconds(at_limit.at("step_time_us").get<double>()));
    return fmt::format("pipeline rank {} runs out of memory {}: {}", at_limit.at("pipeline_rank").dump(),
                       at_limit.at("when").get<std::string>(),
                       at_limit.at("shortage").at("explanation").get<std::string>());
}

}  // namespace stowage::reports
