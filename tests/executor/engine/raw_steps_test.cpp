#include "executor/engine/raw_steps.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/support/hand_program.hpp"

namespace stowage::executor {
namespace {

using profiler::Activity;
using profiler::OperationNumber;
using program::Operation;
using program::OperationKind;
using program::RunStage;
using types::Nanoseconds;

Activity at(std::int64_t start, OperationNumber under) {
    Activity activity;
    activity.start = Nanoseconds{start};
    activity.issued_under = under;
    return activity;
}

TEST(RawSteps, NumberAnOperationInEveryStep) {
    const OperationNumber plain = number_of({123'456, 789}, false);
    for (const std::uint32_t step : {0U, 1U, 63U}) {
        const OperationNumber number = in_step(plain, step);
        EXPECT_EQ(step_of(number), step);
        EXPECT_EQ(without_step(number), plain);
        EXPECT_FALSE(is_captured(number));
    }
    EXPECT_TRUE(is_captured(in_step(number_of({1, 2}, true), 63)));
    EXPECT_THROW(in_step(plain, 64), std::logic_error);
}

// Two steps of one operation; what was issued under none at 15 ran behind the first.
TEST(RawSteps, AreToldApartByTheNumbersOfTheirOperations) {
    const OperationNumber number = number_of({4, 2}, false);
    profiler::Recording recording;
    recording.names = {""};
    recording.dropped = 3;
    recording.activities = {at(20, in_step(number, 1)), at(15, profiler::kNoOperation), at(10, in_step(number, 0)),
                            at(30, in_step(number, 2)), at(19, kBetweenSteps)};
    const std::vector<profiler::Recording> steps = split_steps(recording, 2);
    ASSERT_EQ(steps.size(), 2U);
    EXPECT_EQ(steps[0].activities, (std::vector<Activity>{at(10, number), at(15, profiler::kNoOperation)}));
    EXPECT_EQ(steps[1].activities, std::vector<Activity>{at(20, number)});
    for (const profiler::Recording& step : steps) {
        EXPECT_EQ(step.dropped, 3U);
        EXPECT_EQ(step.names, recording.names);
    }
}

program::StepProgram labelled_program() {
    Operation norm{.kind = OperationKind::compute, .detail = 0};
    norm.part = layers::Part::attn_norm;
    norm.phase = layers::Phase::forward;
    Operation copy{.kind = OperationKind::copy, .detail = 1};
    copy.part = layers::Part::attn_proj;  // where the copy is issued, not whose it is
    copy.module = types::Module::core_attn;
    Operation release{.kind = OperationKind::free};
    release.part = layers::Part::loss;
    release.phase = layers::Phase::backward;
    program::StepProgram program = tests::hand_program({norm, copy, release}, 1);
    program.labels = {"norm.forward", "offload q"};
    for (auto& sequence : program.sequence)
        for (program::Instance& instance : sequence) {
            instance.layer = 5;
            instance.microbatch = 2;
        }
    return program;
}

/// Layer 5 is of the second of three virtual stages.
layers::StageLayers three_chunks() {
    layers::StageLayers stage;
    stage.chunks.resize(3);
    stage.chunks[1].layer_numbers = {-1, 5};
    return stage;
}

TEST(OperationMarks, SayModulePhaseWorkAndPlace) {
    const program::StepProgram program = labelled_program();
    const OperationMarks marks(program, three_chunks());
    const auto of = [&](std::uint32_t operation) {
        return marks.of(RunStage::steady, in_step(number_of({0, operation}, false), 9));
    };
    EXPECT_EQ(of(0), (profiler::Mark{"attn_norm", "forward", "norm.forward", 5, 2, 1}));
    EXPECT_EQ(of(1), (profiler::Mark{"core_attn", "forward", "offload q", 5, 2, 1}));
    EXPECT_EQ(of(2), (profiler::Mark{"loss", "backward", "free", 5, 2, 1}));
    EXPECT_THROW(static_cast<void>(marks.of(RunStage::steady, number_of({99, 0}, false))), std::logic_error);
}

// What has no layer is in front of the first one or behind the last one.
TEST(OperationMarks, PlaceWhatHasNoLayerAtTheEnds) {
    program::StepProgram program = labelled_program();
    for (auto& sequence : program.sequence)
        for (program::Instance& instance : sequence) instance.layer = -1;
    const OperationMarks marks(program, three_chunks());
    EXPECT_EQ(marks.of(RunStage::steady, number_of({0, 0}, false)).chunk, 0);
    EXPECT_EQ(marks.of(RunStage::steady, number_of({0, 2}, false)).chunk, 2);
}

TEST(OperationMarks, ResolveWhatAStepNames) {
    const program::StepProgram program = labelled_program();
    profiler::RawStep step;
    step.activities.activities = {at(1, number_of({0, 0}, false)), at(2, profiler::kNoOperation)};
    step.memory = {
        {profiler::MemoryEvent::Kind::free, 0x100, types::Bytes{8}, Nanoseconds{0}, number_of({0, 2}, false)}};
    OperationMarks(program, three_chunks()).resolve(RunStage::steady, step);
    ASSERT_EQ(step.marks.size(), 2U);
    EXPECT_EQ(step.marks.at(number_of({0, 0}, false)).module, "attn_norm");
    EXPECT_EQ(step.marks.at(number_of({0, 2}, false)).module, "loss");
}

}  // namespace
}  // namespace stowage::executor
