#include "executor/engine/memory_replay.hpp"

#include <limits>

#include "executor/engine/interpreter.hpp"
#include "executor/engine/machine.hpp"

namespace stowage::executor {
namespace {

using program::RunStage;

constexpr Address kPinnedBase = 1 << 20;  // only told apart from nothing

/// Does nothing of what it is told: memory is all that is asked about.
class IdleMachine final : public Machine {
public:
    void compute(const program::Work&, std::span<const Address>, program::Stream, Place) override {}
    void copy(program::Direction, Address, Address, Bytes, program::Stream) override {}
    void delay(Nanoseconds, program::Stream) override {}
    void read_by_host(Bytes /*bytes*/, program::Stream /*stream*/) override {}
    void record(std::uint32_t, program::Stream, bool) override {}
    void wait(std::uint32_t, program::Stream) override {}
    void wait_stream(program::Stream, program::Stream) override {}
    void synchronise(program::Stream) override {}
    void synchronise_all() override {}
    void begin_capture(std::uint32_t) override {}
    CapturedNodes end_capture() override {
        constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
        return {kAny, kAny, kAny};
    }
    void launch_graph(std::uint32_t, program::Stream) override {}
    void join_streams() override {}
};

struct NoMoreAnswers {};

class LoggedEvents final : public memory::StreamEvents {
public:
    explicit LoggedEvents(const std::vector<bool>& answers) : answers_(answers) {}
    memory::EventHandle record(memory::Stream) override { return memory::EventHandle{recorded_++}; }
    bool completed(memory::EventHandle) override {
        if (asked_ == answers_.size()) throw NoMoreAnswers{};
        return answers_[asked_++];
    }
    void wait_all() override {}

private:
    const std::vector<bool>& answers_;
    std::size_t asked_ = 0;
    std::uint64_t recorded_ = 0;
};

}  // namespace

MemoryCounts walk_memory(const program::StepProgram& program, const memory::AllocatorConfig& config,
                         memory::StreamEvents& events, std::int64_t steps) {
    IdleMachine machine;
    memory::VirtualDeviceMemory device;
    const std::unique_ptr<StepMemory> memory = caching_memory(config, device, events);
    Interpreter interpreter(program, machine, *memory, PinnedLayout(program), kPinnedBase);
    for (const RunStage stage : {RunStage::setup, RunStage::record, RunStage::eager, RunStage::capture})
        if (!program.instances(stage).empty()) interpreter.run(stage);
    for (std::int64_t step = 0; step < steps; ++step) interpreter.run(RunStage::steady);
    return memory->counts();
}

std::optional<MemoryCounts> replay_memory(const program::StepProgram& program, const memory::AllocatorConfig& config,
                                          const std::vector<bool>& answers, std::int64_t steps) {
    LoggedEvents events(answers);
    try {
        return walk_memory(program, config, events, steps);
    } catch (const NoMoreAnswers&) {
        return std::nullopt;
    }
}

}  // namespace stowage::executor
