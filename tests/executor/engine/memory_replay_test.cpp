#include "executor/engine/memory_replay.hpp"

#include <gtest/gtest.h>

#include <random>

#include "planner/layers/stage.hpp"
#include "planner/program/lowering.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"

namespace stowage::executor {
namespace {

/// A device whose events are done after a seeded number of questions, and which keeps its answers.
class SeededEvents final : public memory::StreamEvents {
public:
    explicit SeededEvents(std::uint64_t seed) : engine_(seed) {}
    memory::EventHandle record(memory::Stream) override {
        left_.push_back(engine_() % 4);
        return memory::EventHandle{left_.size() - 1};
    }
    bool completed(memory::EventHandle event) override {
        auto& left = left_[static_cast<std::size_t>(event)];
        const bool done = left == 0;
        if (!done) --left;
        answers.push_back(done);
        return done;
    }
    void wait_all() override { std::fill(left_.begin(), left_.end(), 0); }

    std::vector<bool> answers;

private:
    std::mt19937_64 engine_;
    std::vector<std::uint64_t> left_;
};

program::StepProgram offloading_program() {
    types::Scenario scenario = layers::testing::grouped_gpt();
    types::OffloadChoice choice;
    choice.modules = {types::Module::core_attn, types::Module::attn_proj};
    choice.min_offloaded_tensor_size = 1024;
    const program::Durations durations(scenario.hardware, scenario.parallel);
    return program::lower(layers::build_stage(scenario, 0), scenario.microbatches(), choice, scenario.rules, durations)
        .program;
}

// How much is reserved depends on when the copies' events are done; with the same answers it is the same.
TEST(MemoryReplay, TakesTheSameMemoryFromTheSameAnswers) {
    const program::StepProgram program = offloading_program();
    for (const std::uint64_t seed : {1, 2, 3}) {
        SeededEvents device(seed);
        const MemoryCounts measured = walk_memory(program, {}, device, 3);
        ASSERT_GT(device.answers.size(), 0U) << "blocks that a copy used are held back";
        const auto replayed = replay_memory(program, {}, device.answers, 3);
        ASSERT_TRUE(replayed);
        EXPECT_EQ(replayed->peak_allocated, measured.peak_allocated);
        EXPECT_EQ(replayed->peak_reserved, measured.peak_reserved);
        EXPECT_EQ(replayed->device_calls, measured.device_calls);
    }
}

TEST(MemoryReplay, SaysThatAnswersAreTooFew) {
    const program::StepProgram program = offloading_program();
    SeededEvents device(1);
    (void)walk_memory(program, {}, device, 2);
    std::vector<bool> answers = device.answers;
    answers.pop_back();
    EXPECT_FALSE(replay_memory(program, {}, answers, 2));
    EXPECT_FALSE(replay_memory(program, {}, {}, 2));
}

}  // namespace
}  // namespace stowage::executor
