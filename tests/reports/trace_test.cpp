#include "reports/trace.hpp"

#include <gtest/gtest.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "tests/reports/trace_rules.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::reports {
namespace {

using nlohmann::json;
using program::Operation;
using program::OperationKind;
using program::Stream;
using support::TemporaryFolder;
using types::Nanoseconds;
using types::SimTime;

std::string written(const search::TracedOutcome& traced, TraceSize* size = nullptr) {
    const TemporaryFolder folder;
    OutputFile file(folder / "trace.json");
    const TraceSize found = write_trace(traced, file);
    file.commit();
    if (size != nullptr) *size = found;
    return support::file_text(folder / "trace.json");
}

SimTime at(std::int64_t nanoseconds) { return SimTime{Nanoseconds{nanoseconds}}; }

/// One layer on one rank: a kernel, a copy of core_attn out and back in of 3 MiB.
search::TracedOutcome one_layer() {
    program::StepProgram step;
    step.labels = {"attention \"flash\"", "core_attn out", "core_attn in"};
    const Operation kernel{.kind = OperationKind::compute, .part = layers::Part::core_attn, .detail = 0};
    const Operation out{.kind = OperationKind::copy,
                        .stream = Stream::d2h,
                        .direction = program::Direction::device_to_host,
                        .module = types::Module::core_attn,
                        .detail = 1,
                        .bytes = types::Bytes{3 << 20}};
    Operation in = out;
    in.stream = Stream::h2d;
    in.direction = program::Direction::host_to_device;
    in.detail = 2;
    step.bodies = {{"layer", {kernel, out, in}}};
    step.scope_frames = {7};
    step.sequence[static_cast<std::size_t>(program::RunStage::steady)] = {
        {.body = program::BodyId{0}, .microbatch = 3, .layer = 5, .frames_begin = 0}};
    program::StageTimeline timeline;
    const auto ran = [](std::uint32_t operation, Stream stream, int start, int end) {
        return program::TimelineEntry{.operation = operation, .stream = stream, .start = at(start), .end = at(end)};
    };
    timeline.entries = {ran(0, Stream::main, 0, 1'500), ran(1, Stream::d2h, 1'500, 61'001),
                        ran(2, Stream::h2d, 70'000, 130'000)};
    timeline.memory = {{at(10), types::Bytes{100}, types::Bytes{200}, types::Bytes{0}},
                       {at(20), types::Bytes{150}, types::Bytes{200}, types::Bytes{0}}};
    search::TracedOutcome traced;
    traced.programs.push_back(step);
    traced.timelines.push_back(timeline);
    return traced;
}

std::vector<json> events_of(const json& document, const std::string& phase) {
    std::vector<json> found;
    for (const json& event : document.at("traceEvents"))
        if (event.at("ph") == phase) found.push_back(event);
    return found;
}

TEST(Trace, HoldsASliceForEachOperationOnItsStreamInMicroseconds) {
    const std::string text = written(one_layer());
    // 61,001 - 1,500 = 59,501 ns is 59.501 us, written without rounding.
    EXPECT_NE(text.find("\"ts\":1.500,\"dur\":59.501"), std::string::npos) << text;
    const json document = json::parse(text);
    const std::vector<json> slices = events_of(document, "X");
    ASSERT_EQ(slices.size(), 3U);
    EXPECT_EQ(slices[0]["name"], "attention \"flash\"");
    EXPECT_EQ(slices[0]["tid"], 0);
    EXPECT_EQ(slices[0]["args"]["part"], "core_attn");
    EXPECT_EQ(slices[1]["tid"], 1);
    EXPECT_EQ(slices[1]["args"],
              json::parse(R"({"part":"embedding","phase":"forward","layer":5,"microbatch":3,"module":"core_attn",
                              "bytes":3145728})"));
    EXPECT_EQ(trace_problems(document), std::vector<std::string>{});
}

TEST(Trace, JoinsAGroupsCopyOutWithItsReload) {
    const json document = json::parse(written(one_layer()));
    const std::vector<json> starts = events_of(document, "s");
    const std::vector<json> finishes = events_of(document, "f");
    ASSERT_EQ(starts.size(), 1U);
    ASSERT_EQ(finishes.size(), 1U);
    EXPECT_EQ(starts[0]["ts"], 1.5);
    EXPECT_EQ(finishes[0]["ts"], 70);
    EXPECT_EQ(starts[0]["id"], finishes[0]["id"]);
}

TEST(Trace, CountsMemoryWhenItChanges) {
    TraceSize size;
    const std::string text = written(one_layer(), &size);
    const json document = json::parse(text);
    // Allocated, reserved and pinned at 10 ns; at 20 ns only the allocated bytes differ.
    EXPECT_EQ(events_of(document, "C").size(), 4U);
    EXPECT_EQ(size.events, static_cast<std::int64_t>(document["traceEvents"].size()));
    EXPECT_EQ(size.bytes.count, static_cast<std::int64_t>(text.size()));
    EXPECT_EQ(size.left_out, 0);
}

/// A layer's graph: a kernel of 100 us, a copy of core_attn out beside what follows, the external event behind the
/// kernel; launched by microbatch 3 of layer 5 on the graphs' stream. Then a graph of its backward that copies it in.
search::TracedOutcome two_graphs() {
    search::TracedOutcome traced = one_layer();
    program::StepProgram& step = traced.programs.front();
    const auto launch = [&](std::uint32_t label) {
        return Operation{.kind = OperationKind::graph_launch, .stream = Stream::graph, .detail = label};
    };
    const Operation event{.kind = OperationKind::event_record, .scope = program::kGraphScope};
    const std::vector<Operation>& plain = step.bodies.front().operations;
    step.labels.insert(step.labels.end(), {"layer graph", "layer backward graph"});
    step.bodies = {{"captured", {plain[0], plain[1], event}},
                   {"captured backward", {plain[2], plain[0], event}},
                   {"outside", {launch(3)}},
                   {"outside, backward", {launch(4)}}};
    const auto of = [](std::uint32_t body, std::int32_t microbatch, std::uint32_t graph) {
        return program::Instance{
            .body = program::BodyId{body}, .microbatch = microbatch, .layer = 5, .frames_begin = 0, .graph = graph};
    };
    step.sequence[static_cast<std::size_t>(program::RunStage::capture)] = {of(0, 0, 0), of(1, 0, 1)};
    step.sequence[static_cast<std::size_t>(program::RunStage::steady)] = {of(2, 3, 0), of(3, 3, 1)};
    step.graphs = {{0, 1, 3, 2}, {1, 2, 3, 2}};
    const auto node = [](std::uint32_t instance, std::uint32_t operation, Stream stream, int start, int end) {
        return program::TimelineEntry{instance, operation, instance, stream, at(start), at(end)};
    };
    traced.timelines.front().entries = {
        node(0, 0, Stream::graph, 1'000, 101'000), node(0, 1, Stream::graph_d2h, 101'000, 401'000),
        node(1, 0, Stream::graph_h2d, 401'000, 701'000), node(1, 1, Stream::graph, 401'000, 501'000)};
    return traced;
}

TEST(Trace, ShowsGraphsAsWholesWithTheirNodesUnderThem) {
    const json document = json::parse(written(two_graphs()));
    EXPECT_EQ(trace_problems(document), std::vector<std::string>{});
    std::map<std::string, json> tracks;
    for (const json& event : events_of(document, "M"))
        if (event["name"] == "thread_name") tracks[event["args"]["name"]] = event["tid"];
    ASSERT_TRUE(tracks.contains("graphs on graph"));
    std::vector<json> wholes;
    std::vector<json> nodes;
    for (const json& slice : events_of(document, "X"))
        (slice["tid"] == tracks["graphs on graph"] ? wholes : nodes).push_back(slice);
    ASSERT_EQ(wholes.size(), 2U);
    // From the kernel's start to the copy's end.
    EXPECT_EQ(wholes[0]["name"], "layer graph");
    EXPECT_EQ(wholes[0]["ts"], 1);
    EXPECT_EQ(wholes[0]["dur"], 400);
    EXPECT_EQ(wholes[0]["args"], json::parse(R"({"layer":5,"microbatch":3,"nodes":3,"branches":2})"));
    EXPECT_EQ(wholes[1]["name"], "layer backward graph");
    // Captured for microbatch 0, launched for 3.
    ASSERT_EQ(nodes.size(), 4U);
    for (const json& node : nodes) {
        EXPECT_EQ(node["args"]["microbatch"], 3);
        EXPECT_EQ(node["args"]["graph"], true);
    }
    EXPECT_EQ(nodes[1]["name"], "core_attn out");
    EXPECT_EQ(nodes[1]["tid"], tracks["graph_d2h"]);
}

TEST(Trace, MarksTheEventByWhichTheMainStreamGoesOn) {
    const json document = json::parse(written(two_graphs()));
    const std::vector<json> instants = events_of(document, "i");
    ASSERT_EQ(instants.size(), 2U);
    // At the ends of the kernels, not of the copies: 101 and 501 us.
    EXPECT_EQ(instants[0]["ts"], 101);
    EXPECT_EQ(instants[1]["ts"], 501);
}

TEST(Trace, JoinsCopiesInsideGraphs) {
    const json document = json::parse(written(two_graphs()));
    const std::vector<json> starts = events_of(document, "s");
    const std::vector<json> finishes = events_of(document, "f");
    ASSERT_EQ(starts.size(), 1U);
    ASSERT_EQ(finishes.size(), 1U);
    EXPECT_EQ(starts[0]["ts"], 101);
    EXPECT_EQ(finishes[0]["ts"], 401);
}

TEST(Trace, OfASimulatedStepKeepsTheViewersRulesAndTheStepsTimes) {
    const search::Job job = search::prepare(reader::read_scenario(STOWAGE_SOURCE_DIR "/tests/data/small.yaml"));
    const search::TracedOutcome traced =
        search::evaluate_traced(job, {.modules = {types::Module::core_attn, types::Module::qkv_linear}});
    const json document = json::parse(written(traced));
    EXPECT_EQ(trace_problems(document), std::vector<std::string>{});
    std::map<std::int64_t, double> main_us;
    double last_us = 0;
    for (const json& slice : events_of(document, "X")) {
        if (slice["tid"] == 0) main_us[slice["pid"]] += slice["dur"].get<double>();
        last_us = std::max(last_us, slice["ts"].get<double>() + slice["dur"].get<double>());
    }
    ASSERT_EQ(main_us.size(), 4U);
    for (const search::RankOutcome& rank : traced.outcome.ranks)
        EXPECT_NEAR(main_us[rank.pipeline_rank], types::in_microseconds(rank.compute), 0.01);
    EXPECT_LE(last_us, types::in_microseconds(traced.outcome.step_time) + 0.001);
    EXPECT_GT(events_of(document, "s").size(), 0U);
}

json trace_of(const std::string& events) { return json::parse("{\"traceEvents\":[" + events + "]}"); }

TEST(TraceRules, FindWhatAViewerWouldChokeOn) {
    const std::string slice = R"({"ph":"X","pid":0,"tid":0,"ts":0,"dur":10,"name":"a"})";
    EXPECT_EQ(trace_problems(trace_of(slice)).size(), 0U);
    EXPECT_EQ(trace_problems(json::parse("[]")).size(), 1U);
    EXPECT_EQ(trace_problems(trace_of(R"({"ph":"X","pid":0,"tid":0,"dur":1,"name":"a"})")).size(), 1U);
    EXPECT_EQ(trace_problems(trace_of(R"({"ph":"X","pid":0,"tid":0,"ts":0,"dur":-1,"name":"a"})")).size(), 1U);
    EXPECT_EQ(trace_problems(trace_of(R"({"ph":"Q","pid":0,"tid":0,"ts":0})")).size(), 1U);
    EXPECT_EQ(trace_problems(trace_of(R"({"ph":"M","pid":0,"tid":0,"ts":0,"name":"proces_name"})")).size(), 1U);
    EXPECT_EQ(trace_problems(trace_of(R"({"ph":"C","pid":0,"tid":0,"ts":0,"name":"m","args":{"b":"1"}})")).size(), 1U);
}

TEST(TraceRules, LetSlicesNestButNotOverlap) {
    const std::string outer = R"({"ph":"X","pid":0,"tid":0,"ts":0,"dur":10,"name":"a"},)";
    EXPECT_EQ(trace_problems(trace_of(outer + R"({"ph":"X","pid":0,"tid":0,"ts":2,"dur":8,"name":"b"})")).size(), 0U);
    EXPECT_EQ(trace_problems(trace_of(outer + R"({"ph":"X","pid":0,"tid":0,"ts":10,"dur":8,"name":"b"})")).size(), 0U);
    EXPECT_EQ(trace_problems(trace_of(outer + R"({"ph":"X","pid":0,"tid":0,"ts":2,"dur":9,"name":"b"})")).size(), 1U);
    EXPECT_EQ(trace_problems(trace_of(outer + R"({"ph":"X","pid":0,"tid":1,"ts":2,"dur":9,"name":"b"})")).size(), 0U);
}

TEST(TraceRules, WantArrowsInPairsForwardInTimeAndOnSlices) {
    const std::string slices = R"({"ph":"X","pid":0,"tid":0,"ts":0,"dur":1,"name":"a"},
                                  {"ph":"X","pid":0,"tid":1,"ts":5,"dur":1,"name":"b"},)";
    const std::string start = R"({"ph":"s","pid":0,"tid":0,"ts":0,"id":1,"name":"n"})";
    const std::string finish = R"({"ph":"f","pid":0,"tid":1,"ts":5,"id":1,"name":"n"})";
    EXPECT_EQ(trace_problems(trace_of(slices + start + "," + finish)).size(), 0U);
    EXPECT_EQ(trace_problems(trace_of(slices + start)).size(), 1U);
    const std::string elsewhere = R"({"ph":"f","pid":0,"tid":1,"ts":4,"id":1,"name":"n"})";
    EXPECT_EQ(trace_problems(trace_of(slices + start + "," + elsewhere)).size(), 1U);
    const std::string late = R"({"ph":"s","pid":0,"tid":1,"ts":5,"id":2,"name":"n"})";
    const std::string early = R"({"ph":"f","pid":0,"tid":0,"ts":0,"id":2,"name":"n"})";
    EXPECT_EQ(trace_problems(trace_of(slices + late + "," + early)).size(), 1U);
}

}  // namespace
}  // namespace stowage::reports
