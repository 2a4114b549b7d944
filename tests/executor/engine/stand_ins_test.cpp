// Programs of stand-ins, run by the interpreter on a machine that keeps one number for a buffer: what a call writes is
// a hash of what it reads, copies carry numbers, and fresh memory holds one that nothing has. Whoever reads what was
// not written, or gets something else back than what left, gives other sums.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/engine/interpreter.hpp"
#include "executor/workload/random.hpp"
#include "planner/layers/stage.hpp"
#include "planner/program/choose_free.hpp"
#include "planner/program/lowering.hpp"
#include "planner/program/stand_ins.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/executor/engine/fake_machine.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using program::RunStage;
using program::Stream;
using types::Module;
using types::ModuleSet;

class NumberMachine final : public Machine {
public:
    void compute(const program::Work& work, std::span<const Address> buffers, Stream, Place place) override {
        std::vector<Address> places(buffers.begin(), buffers.end());
        issue([this, call = work.call, reads = work.sizes.stand_in.reads.size(), places, place] {
            if (call == Call::copy) return void(numbers_[places[1]] = numbers_[places[0]]);
            if (call == Call::load_hidden)
                return void(numbers_[places[0]] = mix(static_cast<std::uint64_t>(place.microbatch) + 17));
            run(reads, places, place);
        });
    }
    void copy(program::Direction, Address from, Address to, Bytes, Stream) override {
        issue([this, from, to] { numbers_[to] = numbers_[from] ^ (copies_++ == spoilt_ ? 1U : 0U); });
        ++captured_.copies;
    }
    void delay(Nanoseconds, Stream) override {}
    void read_by_host(Bytes, Stream) override {}
    void record(std::uint32_t, Stream, bool) override {}
    void wait(std::uint32_t, Stream) override {}
    void wait_stream(Stream, Stream) override {}
    void synchronise(Stream) override {}
    void synchronise_all() override {}
    void begin_capture(std::uint32_t graph) override {
        capture_ = &graphs_[graph];
        capture_->clear();
        captured_ = {};
    }
    CapturedNodes end_capture() override {
        captured_.kernels = static_cast<std::int64_t>(capture_->size());
        capture_ = nullptr;
        return captured_;
    }
    void launch_graph(std::uint32_t graph, Stream) override {
        for (const auto& call : graphs_.at(graph)) call();
    }
    void join_streams() override {}
    void allocated(Address address, Bytes, Stream) override { numbers_[address] = mix(++garbage_); }

    /// Of the copies from here on, this one changes a bit.
    void spoil(std::int64_t copy) {
        copies_ = 0;
        spoilt_ = copy;
    }
    [[nodiscard]] std::int64_t copies() const { return copies_; }
    void add_at(Address sums) { sums_ = sums; }
    void clear(Address address) { numbers_[address] = 0; }
    [[nodiscard]] std::uint64_t number(Address address) { return numbers_[address]; }

private:
    void issue(std::function<void()> call) { capture_ != nullptr ? capture_->push_back(std::move(call)) : call(); }
    void run(std::size_t reads, const std::vector<Address>& places, Place place) {
        std::uint64_t hash = reads == 0 ? static_cast<std::uint64_t>(place.microbatch) : 0;
        for (std::size_t i = 0; i < reads; ++i) hash = mix(hash + numbers_[places[i]]);
        for (std::size_t i = reads; i < places.size(); ++i) {
            std::uint64_t& number = numbers_[places[i]];
            number = (places[i] == sums_ ? number : 0) + mix(hash + i);
        }
    }
    std::map<Address, std::uint64_t> numbers_;
    std::map<std::uint32_t, std::vector<std::function<void()>>> graphs_;
    std::vector<std::function<void()>>* capture_ = nullptr;
    CapturedNodes captured_;
    std::uint64_t garbage_ = 1000;
    std::int64_t copies_ = 0;
    std::int64_t spoilt_ = -1;
    Address sums_ = 0;
};

layers::StageLayers standing_in(const types::Scenario& scenario) {
    layers::StageLayers stage = layers::build_stage(scenario, 0);
    program::make_stand_ins(stage, program::Durations(scenario.hardware, scenario.parallel),
                            scenario.hardware.node.device);
    return stage;
}

struct Sums {
    std::uint64_t value = 0;
    std::int64_t copies = 0;
};

/// After the first iterations and two steady ones, in which one copy may be spoilt.
Sums run(const types::Scenario& scenario, const types::OffloadChoice& choice, std::int64_t spoilt) {
    const program::Durations durations(scenario.hardware, scenario.parallel);
    const program::Lowered lowered =
        program::lower(standing_in(scenario), scenario.microbatches(), choice, scenario.rules, durations);
    EXPECT_FALSE(lowered.chunk_mismatch);
    NumberMachine machine;
    testing::EndlessMemory device;
    testing::IdleEvents events;
    const std::unique_ptr<StepMemory> memory = caching_memory({}, device, events);
    Interpreter interpreter(lowered.program, machine, *memory, PinnedLayout(lowered.program), 1 << 20);
    interpreter.run(RunStage::setup);
    const Address sums = interpreter.state(layers::StowageState::gradients);
    machine.add_at(sums);
    machine.clear(interpreter.state(layers::StowageState::parameters));
    for (const RunStage stage : {RunStage::record, RunStage::eager, RunStage::capture})
        if (!lowered.program.instances(stage).empty()) interpreter.run(stage);
    machine.clear(sums);
    machine.spoil(spoilt);
    for (int step = 0; step < 2; ++step) interpreter.run(RunStage::steady);
    return {machine.number(sums), machine.copies()};
}

std::uint64_t sums_of(const types::Scenario& scenario, const types::OffloadChoice& choice) {
    return run(scenario, choice, -1).value;
}

types::Scenario as_megatron(const std::string& name) {
    types::Scenario scenario = reader::load_scenario(STOWAGE_SOURCE_DIR "/scenarios/" + name + ".yaml").scenario;
    scenario.implementation = types::Implementation::megatron;
    scenario.optimizer.optimizer = types::OptimizerKind::adam;  // Megatron always has one
    return scenario;
}

types::OffloadChoice moving(const ModuleSet& modules) {
    return {.modules = modules, .min_offloaded_tensor_size = 1024};
}

TEST(StandInSums, AreTheSameWhateverIsMoved) {
    for (const char* name : {"dense-tiny", "moe-tiny", "mla-tiny", "mtp-tiny"}) {
        SCOPED_TRACE(name);
        const types::Scenario scenario = as_megatron(name);
        const std::uint64_t nothing = sums_of(scenario, {});
        EXPECT_NE(nothing, 0U);
        for (const ModuleSet& modules :
             {ModuleSet{Module::core_attn}, ModuleSet{Module::attn_norm, Module::qkv_linear},
              ModuleSet{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj, Module::mlp_norm},
              ModuleSet{Module::core_attn, Module::attn_proj, Module::mlp_norm, Module::expert_fc1, Module::moe_act}}) {
            EXPECT_EQ(sums_of(scenario, moving(modules)), nothing) << modules.joined(" ");
            types::OffloadChoice free = moving(modules);
            free.free = program::choose_free(standing_in(scenario), free, 1.0);
            EXPECT_EQ(sums_of(scenario, free), nothing) << "policy stowage, " << modules.joined(" ");
        }
    }
}

// Both directions: every tensor that left is read again.
TEST(StandInSums, DifferWhereOneBitOfOneCopyDoes) {
    const types::Scenario scenario = as_megatron("dense-tiny");
    const types::OffloadChoice choice = moving({Module::qkv_linear, Module::core_attn, Module::attn_proj});
    const Sums sound = run(scenario, choice, -1);
    ASSERT_GT(sound.copies, 20);
    for (std::int64_t copy = 0; copy < sound.copies; ++copy)
        EXPECT_NE(run(scenario, choice, copy).value, sound.value) << "copy " << copy << " of " << sound.copies;
}

TEST(StandInSums, OfAWholeGraphAreThoseOfEagerSteps) {
    types::Scenario scenario = as_megatron("dense-tiny");
    const std::uint64_t eager = sums_of(scenario, {});
    scenario.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::full_iteration;
    EXPECT_EQ(sums_of(scenario, {}), eager);
    EXPECT_EQ(sums_of(scenario, moving({Module::core_attn, Module::attn_proj})), eager);
}

TEST(StandInSums, UnderGraphsOfLayersAreTheSameWhateverIsMoved) {
    types::Scenario scenario = as_megatron("dense-tiny");
    scenario.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::transformer_engine;
    scenario.cuda_graph.cuda_graph_modules = {types::CudaGraphModule::attn};
    const std::uint64_t nothing = sums_of(scenario, {});
    EXPECT_EQ(sums_of(scenario, moving({Module::core_attn, Module::attn_proj})), nothing);
}

}  // namespace
}  // namespace stowage::executor
