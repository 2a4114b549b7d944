#include "reports/recording_report.hpp"

#include <gtest/gtest.h>

namespace stowage::reports {
namespace {

using recording::Event;
using recording::Recording;
using recording::Step;
using types::Bytes;
using types::Nanoseconds;

Event event(std::uint32_t site, std::int64_t microseconds) {
    Event event;
    event.site = site;
    event.duration = Nanoseconds{1000 * microseconds};
    return event;
}

Step step(const std::string& stage, std::vector<Event> events, std::int64_t microseconds) {
    Step step;
    step.stage = stage;
    step.time = Nanoseconds{1000 * microseconds};
    step.events = std::move(events);
    return step;
}

/// Two eager steps: core_attn takes 300 and 500 us forward and 1000 us backward, the optimizer 2000 us.
Recording recording() {
    Recording recording;
    recording.scenario_name = "dense";
    recording.implementation = "stowage";
    recording.machine.device = "a GPU";
    recording.sites = {{"core_attn", "forward", "attention"},
                       {"core_attn", "backward", "attention"},
                       {"optimizer", "optimizer", "adam"}};
    recording.step_times = {Nanoseconds{4'000'000}, Nanoseconds{4'200'000}, Nanoseconds{3'800'000}};
    recording.steps = {step("eager", {event(0, 300), event(1, 1000), event(2, 2000)}, 4040),
                       step("eager", {event(0, 500), event(1, 1000), event(2, 2000)}, 4120),
                       step("record", {event(0, 9000)}, 0)};
    recording.steps[1].dropped = 2;
    recording.steps[0].unmatched = 1;
    recording::Tensor tensor;
    tensor.bytes = tensor.storage_bytes = Bytes{1 << 30};
    recording::Tensor moved = tensor;
    moved.offloaded = true;
    recording.groups = {
        {"core_attn", 0, 0, 0, {tensor, moved}}, {"core_attn", 1, 0, 0, {moved}}, {"core_attn", 0, 1, 0, {moved}}};
    return recording;
}

TEST(RecordingReport, AddsUpTheTimesOfModules) {
    const Json summary = recording_summary(recording());
    EXPECT_EQ(summary.at("step_time_us"), 4000.0);
    // 4080 us on average, beside 4000 us.
    EXPECT_NEAR(summary.at("recording_cost").get<double>(), 0.02, 1e-12);
    EXPECT_EQ(summary.at("dropped"), 2);
    EXPECT_EQ(summary.at("unmatched"), 1);
    const Json& modules = summary.at("modules").at("eager");
    EXPECT_FALSE(summary.at("modules").contains("record"));
    ASSERT_EQ(modules.size(), 2U);
    EXPECT_EQ(modules[0].at("module"), "optimizer");
    EXPECT_EQ(modules[0].at("total_us"), 2000.0);
    EXPECT_EQ(modules[1].at("module"), "core_attn");
    EXPECT_EQ(modules[1].at("total_us"), 1400.0);
    EXPECT_EQ(modules[1].at("phases_us").at("forward"), 400.0);
    EXPECT_EQ(modules[1].at("phases_us").at("backward"), 1000.0);
}

// Of the first microbatch: two groups, three tensors, which in this recording are one storage.
TEST(RecordingReport, CountsWhatOneMicrobatchKeeps) {
    const Json summary = recording_summary(recording());
    const Json& saved = summary.at("saved");
    ASSERT_EQ(saved.size(), 1U);
    EXPECT_EQ(saved[0].at("groups"), 2);
    EXPECT_EQ(saved[0].at("tensors"), 3);
    EXPECT_EQ(saved[0].at("storages"), 1);
    EXPECT_EQ(saved[0].at("bytes"), 3LL << 30);
    EXPECT_EQ(saved[0].at("offloaded_bytes"), 2LL << 30);
}

TEST(RecordingReport, SaysItInWords) {
    EXPECT_EQ(recording_text(recording_summary(recording())),
              "dense: pipeline rank 0 recorded, layers as stowage runs them\n"
              "\n"
              "  device    a GPU\n"
              "  step      4.00 ms, median of 3 eager steps that were not recorded\n"
              "  recorded  eager 4.04 ms, 3 events; eager 4.12 ms, 3 events; record, 1 events\n"
              "  records   2 records dropped, 1 activities without a mark; recorded steps took +2.00 % longer than\n"
              "            the others\n"
              "\n"
              "Time of the device in a step (eager), ms\n"
              "  module     forward  backward  weight gradient  recompute  other  all, ms\n"
              "  optimizer                                                  2.00     2.00\n"
              "  core_attn     0.40      1.00                                        1.40\n"
              "\n"
              "Kept for the backward by one microbatch\n"
              "  module     groups  tensors  storages     GiB  moved, GiB\n"
              "  core_attn       2        3         1  3.0000      2.0000\n");
}

// No times, no steps: nothing to compare.
TEST(RecordingReport, OfNothingSaysNothing) {
    const Json summary = recording_summary({});
    EXPECT_TRUE(summary.at("step_time_us").is_null());
    EXPECT_TRUE(summary.at("recording_cost").is_null());
    EXPECT_TRUE(summary.at("modules").empty());
    EXPECT_NE(recording_text(summary).find("0 records dropped"), std::string::npos);
}

}  // namespace
}  // namespace stowage::reports
