#include "executor/engine/interpreter.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/executor/engine/fake_machine.hpp"
#include "tests/support/hand_program.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using program::BufferRef;
using program::Direction;
using program::Operation;
using program::OperationKind;
using program::RunStage;
using program::Stream;
using Lines = std::vector<std::string>;

constexpr Address kPinned = 0x10;

/// An interpreter over a fake machine and the caching allocator over endless memory.
struct Fixture {
    explicit Fixture(program::StepProgram given) : program(std::move(given)) {}

    Lines run(RunStage stage) {
        machine.calls.clear();
        interpreter.run(stage);
        return machine.calls;
    }

    program::StepProgram program;
    testing::FakeMachine machine;
    testing::EndlessMemory device;
    testing::IdleEvents events;
    std::unique_ptr<StepMemory> memory = caching_memory({}, device, events);
    Interpreter interpreter{program, machine, *memory, PinnedLayout(program), kPinned};
};

program::Work work(Call call, std::vector<BufferRef> buffers) { return {call, {}, std::move(buffers)}; }

Operation allocate(std::uint32_t slot, std::int64_t bytes) {
    return {.kind = OperationKind::allocate, .slot = slot, .bytes = Bytes{bytes}};
}
Operation release(std::uint32_t slot, std::int64_t bytes) {
    return {.kind = OperationKind::free, .slot = slot, .bytes = Bytes{bytes}};
}

// Two buffers of 512 bytes in the first small segment of 2 MiB, which lies at 1 MiB: 0x100000 and 0x100200.
TEST(Interpreter, GivesAKernelTheAddressesOfItsOperands) {
    program::StepProgram program = tests::hand_program({allocate(0, 512),
                                                        allocate(1, 512),
                                                        {.kind = OperationKind::compute, .slot = 1},
                                                        release(1, 512),
                                                        release(0, 512)},
                                                       2);
    program.works = {{}, work(Call::norm_forward, {{.slot = 1}, {.slot = 0}})};
    Fixture fixture(std::move(program));
    EXPECT_EQ(fixture.run(RunStage::steady), (Lines{"norm_forward on main for 0: 0x100200 0x100000", "join"}));
}

TEST(Interpreter, CopiesBetweenDeviceAndPinnedMemoryOnTheStreamsOfTheProgram) {
    program::StepProgram program =
        tests::hand_program({allocate(0, 512),
                             {.kind = OperationKind::stream_wait, .stream = Stream::d2h, .other = Stream::main},
                             {.kind = OperationKind::pinned_acquire, .slot = 1, .bytes = Bytes{512}},
                             {.kind = OperationKind::copy,
                              .stream = Stream::d2h,
                              .direction = Direction::device_to_host,
                              .slot = 1,
                              .bytes = Bytes{512}},
                             {.kind = OperationKind::event_record, .stream = Stream::d2h, .slot = 0},
                             {.kind = OperationKind::record_stream, .stream = Stream::d2h, .slot = 0},
                             release(0, 512),
                             {.kind = OperationKind::event_wait, .stream = Stream::main, .slot = 0},
                             {.kind = OperationKind::pinned_release, .slot = 1, .bytes = Bytes{512}}},
                            2, 1);
    program.works = {{}, work(Call::copy, {{.slot = 0}, {.slot = 1}})};
    Fixture fixture(std::move(program));
    EXPECT_EQ(fixture.run(RunStage::steady),
              (Lines{"d2h waits for main", "copy out on d2h: 0x100000 to 0x10, 512 bytes", "record 0 on d2h",
                     "main waits for 0", "join"}));
}

TEST(Interpreter, SaysWhichOperationLacksItsWork) {
    Fixture fixture(tests::hand_program({{.kind = OperationKind::compute}}));
    fixture.program.labels = {"norm.forward"};
    try {
        fixture.interpreter.run(RunStage::steady);
        FAIL() << "it ran";
    } catch (const std::logic_error& error) {
        EXPECT_NE(std::string(error.what()).find("operation 0 (compute norm.forward)"), std::string::npos)
            << error.what();
    }
}

TEST(Interpreter, RefusesAnOperandThatHoldsNothing) {
    program::StepProgram program = tests::hand_program({{.kind = OperationKind::compute, .slot = 1}}, 1);
    program.works = {{}, work(Call::norm_forward, {{.slot = 0}})};
    Fixture fixture(std::move(program));
    EXPECT_THROW(fixture.interpreter.run(RunStage::steady), std::logic_error);
}

// What other ranks would do is a delay of the modelled length.
TEST(Interpreter, WaitsForOtherRanks) {
    Fixture fixture(tests::hand_program(
        {{.kind = OperationKind::collective, .stream = Stream::communication, .duration = types::Nanoseconds{1500}}}));
    EXPECT_EQ(fixture.run(RunStage::steady), (Lines{"delay of 1500 ns on communication", "join"}));
}

/// A graph with a copy in it, launched in the steady step.
program::StepProgram copying_graph() {
    const std::vector<Operation> captured{allocate(0, 512),
                                          allocate(1, 512),
                                          {.kind = OperationKind::copy,
                                           .stream = Stream::d2h,
                                           .direction = Direction::device_to_host,
                                           .slot = 1,
                                           .bytes = Bytes{8}}};
    program::StepProgram program = tests::hand_graphs({captured}, {{.kind = OperationKind::graph_launch, .slot = 0}});
    program.frame_slots = {0, 2, 2, 2, 2};
    program.works = {{}, work(Call::copy, {{.slot = 0}, {.slot = 1}})};
    return program;
}

TEST(Interpreter, CapturesOnceAndLaunchesInTheStep) {
    Fixture fixture(copying_graph());
    const Lines captured = fixture.run(RunStage::capture);
    ASSERT_EQ(captured.size(), 5U);
    EXPECT_EQ(captured[0], "host waits for all");
    EXPECT_EQ(captured[1], "capture 0");
    EXPECT_EQ(captured[3], "end of capture");
    EXPECT_EQ(fixture.run(RunStage::steady), (Lines{"launch 0 on main", "join"}));
}

TEST(Interpreter, RefusesAGraphWithFewerCopiesThanTheProgramPutIntoIt) {
    Fixture fixture(copying_graph());
    fixture.machine.lost_copies = 1;
    EXPECT_THROW(fixture.interpreter.run(RunStage::capture), std::logic_error);
}

// The capture frees what its graph made for the graphs behind it; a replay writes there all the same, for every
// microbatch: frame 1 looks in frame 0.
TEST(Interpreter, FindsWhatAGraphMadeInTheCapturedFrameOfAnyMicrobatch) {
    const std::vector<Operation> captured{
        allocate(0, 512), {.kind = OperationKind::compute, .slot = 1}, release(0, 512)};
    program::StepProgram program = tests::hand_graphs(
        {captured}, {{.kind = OperationKind::graph_launch, .slot = 0}, {.kind = OperationKind::compute, .slot = 2}});
    program.frame_slots = {0, 1, 2, 2, 2};
    program.captured_frames = {0, 0};
    program.works = {{}, work(Call::norm_forward, {{.slot = 0}}), work(Call::norm_backward, {{.scope = 1, .slot = 0}})};
    Fixture fixture(std::move(program));
    const std::string made = fixture.run(RunStage::capture).at(2);
    ASSERT_TRUE(made.starts_with("norm_forward on main for 0: 0x")) << made;
    EXPECT_EQ(fixture.run(RunStage::steady),
              (Lines{"launch 0 on main", "norm_backward on main for 0:" + made.substr(made.rfind(' ')), "join"}));
}

}  // namespace
}  // namespace stowage::executor
