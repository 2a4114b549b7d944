#include "scenarios/recording/recording_file.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "scenarios/types/error.hpp"

namespace stowage::recording {
namespace {

/// A step as one of a large slice: kernels of 300 classes, durations that vary, gaps of a microsecond or two.
Step busy_step(std::size_t events, std::uint64_t seed) {
    std::mt19937_64 engine(seed);
    Step step;
    step.stage = "eager";
    Nanoseconds now{0};
    for (std::size_t i = 0; i < events; ++i) {
        Event event;
        event.site = static_cast<std::uint32_t>(i % 150);
        event.name = static_cast<std::uint32_t>(1 + i % 50);
        event.operation = static_cast<std::uint32_t>(i - i / 10);
        event.layer = static_cast<std::int32_t>(i / 150 % 48);
        event.microbatch = static_cast<std::int32_t>(i / 7200);
        event.stream = 7;
        event.start = now + Nanoseconds{1000 + static_cast<std::int64_t>(engine() % 1000)};
        const auto usual = static_cast<std::int64_t>(3000 * (1 + i % 150));
        event.duration = Nanoseconds{usual + static_cast<std::int64_t>(engine() % 6000)};
        now = event.start + event.duration;
        step.events.push_back(event);
    }
    step.duration = now;
    return step;
}

Recording recording() {
    Recording recording;
    recording.source = "stowage";
    recording.implementation = "stowage";
    recording.scenario_name = "dense";
    recording.scenario_text = "schema: stowage/scenario/1\n# \"quoted\", and a tab\t\n";
    recording.pipeline_rank = 3;
    recording.machine = {"NVIDIA H200", "13.0", "13.0", "13.1.0", "9.14.0", 132, Bytes{150'754'820'096}};
    recording.samples = {{"before", 1980U, 3201U, 120.5, 40U, {}}, {"warm", {}, {}, {}, {}, {"power cap", "heat"}}};
    recording.step_times = {Nanoseconds{123'456'789}, Nanoseconds{1}};
    for (std::uint32_t i = 0; i < 150; ++i)
        recording.sites.push_back({"core_attn", "forward", "attention " + std::to_string(i)});
    recording.names.emplace_back();
    for (std::uint32_t i = 0; i < 50; ++i) recording.names.push_back("kernel<" + std::to_string(i) + ">");
    Tensor tensor;
    tensor.storage = 1;
    tensor.bytes = tensor.storage_bytes = Bytes{64};
    tensor.allocated = Nanoseconds{-3};
    recording.groups = {{"core_attn", 0, 1, 0, {tensor}}};
    recording.steps = {busy_step(500, 1), busy_step(20, 2)};
    recording.steps[0].time = Nanoseconds{1001};
    recording.steps[1].dropped = 2;
    recording.steps[1].unmatched = 3;
    recording.steps[1].graphs = true;
    return recording;
}

void expect_equal(const Recording& read, const Recording& written) {
    EXPECT_EQ(read.source, written.source);
    EXPECT_EQ(read.implementation, written.implementation);
    EXPECT_EQ(read.scenario_name, written.scenario_name);
    EXPECT_EQ(read.scenario_text, written.scenario_text);
    EXPECT_EQ(read.pipeline_rank, written.pipeline_rank);
    EXPECT_EQ(read.machine.device, written.machine.device);
    EXPECT_EQ(read.machine.memory, written.machine.memory);
    ASSERT_EQ(read.samples.size(), written.samples.size());
    for (std::size_t i = 0; i < read.samples.size(); ++i) {
        EXPECT_EQ(read.samples[i].when, written.samples[i].when);
        EXPECT_EQ(read.samples[i].sm_clock_mhz, written.samples[i].sm_clock_mhz);
        EXPECT_EQ(read.samples[i].power_watts, written.samples[i].power_watts);
        EXPECT_EQ(read.samples[i].throttle_reasons, written.samples[i].throttle_reasons);
    }
    EXPECT_EQ(read.step_times, written.step_times);
    EXPECT_EQ(read.sites, written.sites);
    EXPECT_EQ(read.names, written.names);
    EXPECT_EQ(read.groups, written.groups);
    ASSERT_EQ(read.steps.size(), written.steps.size());
    for (std::size_t i = 0; i < read.steps.size(); ++i) {
        EXPECT_EQ(read.steps[i].stage, written.steps[i].stage);
        EXPECT_EQ(read.steps[i].graphs, written.steps[i].graphs);
        EXPECT_EQ(read.steps[i].duration, written.steps[i].duration);
        EXPECT_EQ(read.steps[i].time, written.steps[i].time);
        EXPECT_EQ(read.steps[i].events, written.steps[i].events);
        EXPECT_EQ(read.steps[i].dropped, written.steps[i].dropped);
        EXPECT_EQ(read.steps[i].unmatched, written.steps[i].unmatched);
    }
}

TEST(RecordingFile, ComesBackAsItWas) {
    const std::string text = recording_text(recording());
    expect_equal(parse_recording(text, "r.json"), recording());
    EXPECT_EQ(recording_text(parse_recording(text, "r.json")), text);
}

TEST(RecordingFile, OfNothingIsAFileToo) {
    const std::string text = recording_text({});
    EXPECT_EQ(recording_text(parse_recording(text, "r.json")), text);
}

// Three eager steps of 20,000 events: what a slice of Qwen3-30B-A3B has.
TEST(RecordingFile, OfSixtyThousandEventsIsBelowAMebibyte) {
    Recording large = recording();
    large.steps = {busy_step(20'000, 1), busy_step(20'000, 2), busy_step(20'000, 3)};
    const std::string text = recording_text(large);
    RecordProperty("bytes", static_cast<int>(text.size()));
    EXPECT_LT(text.size(), std::size_t{1} << 20);
    expect_equal(parse_recording(text, "r.json"), large);
}

/// The message for the file with something else at one place; empty: it was read.
template <class Change>
std::string fault(Change change) {
    nlohmann::ordered_json document = nlohmann::ordered_json::parse(recording_text(recording()));
    change(document);
    try {
        (void)parse_recording(document.dump(), "r.json");
    } catch (const types::InputError& error) {
        const std::string message = error.what();
        return message.substr(0, message.find('\n'));
    }
    return "";
}

TEST(RecordingFile, SaysWhereItIsWrong) {
    using Json = nlohmann::ordered_json;
    EXPECT_EQ(fault([](Json&) {}), "");
    EXPECT_EQ(fault([](Json& file) { file["schema"] = "stowage/plan/1"; }),
              "r.json: error: schema: expected stowage/recording/1, found \"stowage/plan/1\"");
    EXPECT_EQ(fault([](Json& file) { file.erase("steps"); }), "r.json: error: lacks the key 'steps'");
    EXPECT_EQ(fault([](Json& file) { file["steps"][1].erase("stage"); }),
              "r.json: error: steps[1]: lacks the key 'stage'");
    EXPECT_EQ(fault([](Json& file) { file["pipeline_rank"] = -1; }),
              "r.json: error: pipeline_rank: expected a whole number from 0 to 2147483647, found -1");
    EXPECT_EQ(fault([](Json& file) { file["steps"][0]["classes"][2]["site"] = 150; }),
              "r.json: error: steps[0].classes[2].site: expected a whole number from 0 to 149, found 150");
    EXPECT_EQ(fault([](Json& file) { file["steps"][0]["classes"][2]["kind"] = "gemm"; }),
              "r.json: error: steps[0].classes[2].kind: expected kernel, device_to_host, host_to_device, "
              "device_to_device or memset, found \"gemm\"");
    EXPECT_EQ(fault([](Json& file) { file["steps"][0]["columns"]["gap_ns"][0] = "1,?"; }),
              "r.json: error: steps[0].columns.gap_ns: line 0: expected an integer in base 36, as '-1z' or '0*a', "
              "found '?'");
    EXPECT_EQ(fault([](Json& file) { file["steps"][1]["events"] = 21; }),
              "r.json: error: steps[1].columns.class: line 0: expected 21 integers, found 20");
    EXPECT_EQ(fault([](Json& file) { file["saved"]["tensor_columns"]["offloaded"] = {"7"}; }),
              "r.json: error: saved: offloaded, row 0: expected 0 to 2 without the last, found 7");
    EXPECT_EQ(fault([](Json& file) { file["sites"] = Json::array(); }),
              "r.json: error: steps[0].classes[0].site: expected a whole number from 0 to -1, found 0");
}

TEST(RecordingFile, IsRefusedWhereItIsNoJson) {
    try {
        (void)parse_recording("{\n \"schema\": oops", "r.json");
        FAIL() << "it was read";
    } catch (const types::InputError& error) {
        EXPECT_NE(std::string(error.what()).find("r.json: error: not JSON: "), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("line 2, column 12"), std::string::npos) << error.what();
    }
    EXPECT_THROW(parse_recording(std::string(100'000, '['), "r.json"), types::InputError);
    EXPECT_THROW(read_recording("there-is-no-such-file.json"), types::InputError);
}

}  // namespace
}  // namespace stowage::recording
