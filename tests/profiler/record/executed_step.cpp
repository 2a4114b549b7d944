#include "tests/profiler/record/executed_step.hpp"

#include "executor/engine/interpreter.hpp"
#include "executor/engine/raw_steps.hpp"
#include "planner/program/lowering.hpp"
#include "tests/executor/engine/fake_machine.hpp"

namespace stowage::profiler::testing {

RawStep first_iteration(const types::Scenario& scenario, const layers::StageLayers& stage,
                        const types::ModuleSet& modules) {
    types::OffloadChoice choice;
    choice.modules = modules;
    choice.min_offloaded_tensor_size = 0;
    const program::Durations durations(scenario.hardware, scenario.parallel);
    const program::Lowered lowered = program::lower(stage, scenario.microbatches(), choice, scenario.rules, durations);

    stowage::testing::FakeMachine machine;
    stowage::testing::EndlessMemory device;
    stowage::testing::IdleEvents events;
    const auto memory = executor::caching_memory({}, device, events);
    constexpr executor::Address kPinned = 0x10;
    executor::Interpreter interpreter(lowered.program, machine, *memory, executor::PinnedLayout(lowered.program),
                                      kPinned);
    interpreter.run(program::RunStage::setup);
    RawStep step;
    step.stage = "record";
    interpreter.on_memory([&](MemoryEvent::Kind kind, executor::OperationId id, const executor::Buffer& buffer) {
        const types::Nanoseconds time{std::ssize(step.memory)};
        step.memory.push_back({kind, buffer.address, buffer.bytes, time, executor::number_of(id, false)});
    });
    interpreter.run(program::RunStage::record);
    executor::OperationMarks(lowered.program, stage).resolve(program::RunStage::record, step);
    return step;
}

}  // namespace stowage::profiler::testing
