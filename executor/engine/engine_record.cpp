// The part of Execution that records steps instead of measuring them.

#include <fmt/format.h>

#include "executor/engine/engine.hpp"

namespace stowage::executor {

using profiler::MemoryEvent;
using program::RunStage;

/// The first iteration, with what it does to memory. Everything that a policy moves leaves in it.
void Execution::record_first() {
    say("recording the first iteration");
    profiler::RawStep raw;
    raw.stage = "record";
    interpreter_->on_memory([&](MemoryEvent::Kind kind, OperationId id, const Buffer& buffer) {
        raw.memory.push_back({kind, buffer.address, buffer.bytes, recorder_->now(), number_of(id, false)});
    });
    machine_.synchronise_all();
    recorder_->start();
    attributing_ = true;
    run_stage(RunStage::record);
    end_attribution();
    interpreter_->on_memory({});
    raw.activities = take_records();
    OperationMarks(lowered_.program, stage_).resolve(RunStage::record, raw);
    result_.recorded_steps.push_back(std::move(raw));
}

/// Steps run back to back, as in training: the device's clocks and the host's lead are what they are there. One step
/// before them bears what CUPTI costs at first, and is thrown away.
void Execution::record_steady() {
    const auto steps = static_cast<std::uint32_t>(request_.record->steady);
    say(fmt::format("recording {} steps", steps));
    std::vector<Event> ends;
    for (std::uint32_t i = 0; i <= steps; ++i) ends.emplace_back(EventTiming::on);
    recorder_->start();
    attributing_ = true;
    for (recorded_step_ = 0; recorded_step_ <= steps; ++recorded_step_) {
        attribute(kBetweenSteps);
        step();
        ends[recorded_step_].record(machine_.main());
    }
    recorded_step_ = 0;
    end_attribution();
    std::vector<profiler::Recording> recordings = split_steps(take_records(), steps + 1);
    const OperationMarks marks(lowered_.program, stage_);
    const bool graphs = !lowered_.program.graphs.empty();
    for (std::uint32_t i = 1; i <= steps; ++i) {
        profiler::RawStep raw;
        raw.stage = graphs ? "steady" : "eager";
        raw.graphs = graphs;
        raw.time = elapsed(ends[i - 1].ref(), ends[i].ref());
        raw.activities = std::move(recordings[i]);
        marks.resolve(RunStage::steady, raw);
        result_.recorded_steps.push_back(std::move(raw));
    }
    sample("recorded");
}

void Execution::record() {
    if (!records_steady()) return;
    say("warming up");
    warm_up();
    if (request_.steps > 0) {
        say("timing");
        time_steps();
    }
    record_steady();
}

}  // namespace stowage::executor
