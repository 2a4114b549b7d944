#include "planner/program/stand_ins.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "planner/program/stand_in_operands.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::program {
namespace {

using layers::CallOperand;
using layers::Kernel;
using layers::KernelCall;
using layers::LayerScript;
using layers::Step;
using layers::StepKind;
using layers::StowageState;
using Operand = StandInOperands::Operand;

constexpr Bytes kPiece{layers::kStandInPiece};

Bytes whole_pieces(double bytes) { return Bytes{static_cast<std::int64_t>(bytes) / kPiece.count * kPiece.count}; }

Bytes total(const std::vector<Operand>& operands, bool boundary) {
    Bytes sum{};
    for (const Operand& operand : operands)
        if (operand.boundary == boundary) sum = sum + operand.bytes;
    return sum;
}

/// What is told of an operand: whole pieces, at least one where the tensor has it.
Bytes touched(const Operand& operand, double share) {
    const auto bytes = static_cast<double>(operand.bytes.count);
    return std::min(std::max(whole_pieces(operand.boundary ? bytes : share * bytes), kPiece), whole_pieces(bytes));
}

/// Makes the calls of a script's kernels, one after the other.
class ScriptStandIns {
public:
    ScriptStandIns(const Durations& durations, const types::Device& device, Bytes sums)
        : durations_(durations), device_(device), sums_(sums) {}

    void make(LayerScript& script, const layers::LayerGraphs* graphs) const {
        OperandFinder finder(script, graphs);
        finder.begin_forward();
        walk(script, script.forward, finder);
        finder.begin_backward();
        walk(script, script.backward, finder);
    }

private:
    void walk(LayerScript& script, const std::vector<Step>& steps, OperandFinder& finder) const {
        for (std::size_t number = 0; number < steps.size(); ++number) {
            const Step& step = steps[number];
            finder.step(step, number);
            if (step.kind == StepKind::kernel) {
                Kernel& kernel = script.kernels[step.detail];
                kernel.call = stand_in(work_of(kernel, step.phase), finder, number);
                kernel.launches = layers::launches_of(kernel.call);
            }
            if (step.kind == StepKind::collective) join(script.collectives[step.detail], finder, number);
        }
    }

    /// What a collective makes and the main stream waits for.
    void join(layers::Collective& collective, OperandFinder& finder, std::size_t number) const {
        const layers::StandInWork work = work_of(collective);
        if (collective.blocks_main && work.length > Nanoseconds{0} && finder.has_writes(number))
            collective.call = stand_in(work, finder, number);
    }

    [[nodiscard]] layers::StandInWork work_of(const Kernel& kernel, layers::Phase phase) const {
        const Nanoseconds length = durations_.kernel(kernel, phase) - device_.kernel_overhead;
        return {kernel.kind, std::max(Nanoseconds{0}, length), kernel.traffic, {}, {}, {}};
    }

    /// Its operands are all that it moves in this memory.
    [[nodiscard]] layers::StandInWork work_of(const layers::Collective& collective) const {
        return {types::KernelClass::memory_bound, durations_.collective(collective), {}, {}, {}, {}};
    }

    KernelCall stand_in(layers::StandInWork work, OperandFinder& finder, std::size_t number) const {
        const StandInOperands operands = finder.take(number);
        const Bytes most = movable(work);
        const double share = share_of(operands, most);
        KernelCall call{layers::Call::stand_in, {}, {}};
        for (const Operand& operand : operands.reads)
            if (const Bytes bytes = touched(operand, share); bytes > Bytes{}) {
                call.operands.push_back(operand.operand);
                work.reads.push_back(bytes);
            }
        for (const Operand& operand : operands.writes) {
            const Bytes bytes = touched(operand, share);
            finder.wrote(operand.operand, bytes);
            if (bytes == Bytes{}) continue;
            call.operands.push_back(operand.operand);
            work.writes.push_back(bytes);
        }
        call.sizes.stand_in = std::move(work);
        if (call.sizes.stand_in.writes.empty()) add_sums(call, most);
        return call;
    }

    /// What the operands may have. Where that is not known (products and attention out of a recording, collectives):
    /// half of what memory moves meanwhile.
    [[nodiscard]] Bytes movable(const layers::StandInWork& work) const {
        if (work.traffic > Bytes{}) return work.traffic;
        return whole_pieces(device_.memory_bandwidth.rate * static_cast<double>(work.length.count()) / 2e9);
    }

    static double share_of(const StandInOperands& operands, Bytes movable) {
        const Bytes whole = total(operands.writes, true);
        const Bytes others = total(operands.reads, false) + total(operands.writes, false);
        if (others == Bytes{} || whole + others <= movable) return 1;
        return std::max(0.0, static_cast<double>((movable - whole).count) / static_cast<double>(others.count));
    }

    /// As many as it reads, at most a quarter of its traffic: they are read and written.
    void add_sums(KernelCall& call, Bytes movable) const {
        Bytes reads{};
        for (const Bytes bytes : call.sizes.stand_in.reads) reads = reads + bytes;
        const Bytes most = std::min({reads, sums_, Bytes{movable.count / 4}});
        call.sizes.stand_in.sums = std::max(whole_pieces(static_cast<double>(most.count)), kPiece);
        call.operands.push_back({CallOperand::Kind::state, static_cast<std::uint16_t>(StowageState::gradients),
                                 layers::Access::read_write});
    }

    const Durations& durations_;
    const types::Device& device_;
    Bytes sums_;
};

// -------------------------------------------------------------------------------------------------------------- states

layers::StateBuffer* find_role(layers::StageLayers& stage, StowageState role) {
    const auto found = std::find_if(stage.states.begin(), stage.states.end(),
                                    [role](const layers::StateBuffer& state) { return state.role == role; });
    return found == stage.states.end() ? nullptr : &*found;
}

/// The largest state of set-up without a role.
layers::StateBuffer& give_role(layers::StageLayers& stage, StowageState role) {
    layers::StateBuffer* largest = find_role(stage, role);
    if (largest != nullptr) return *largest;
    for (layers::StateBuffer& state : stage.states) {
        const bool lasts = state.when == layers::StateBuffer::When::setup && !state.on_host() && !state.role;
        if (lasts && state.bytes >= kPiece && (largest == nullptr || state.bytes > largest->bytes)) largest = &state;
    }
    if (largest == nullptr)
        throw types::UnsupportedError(
            "error: stand-ins: the rank keeps no two buffers from its set-up on, to copy weights from and to add to");
    largest->role = role;
    return *largest;
}

/// Of a tensor that the module holds and that an offload group may move.
void require_weights_fit(const layers::StageLayers& stage, Bytes weights) {
    for (const LayerScript& script : stage.scripts)
        for (const layers::SavedTensor& saved : script.saved) {
            const layers::Tensor& tensor = script.tensors[layers::index(saved.tensor)];
            if (!saved.group || !tensor.persistent || tensor.parameter || saved.bytes() <= weights) continue;
            throw types::UnsupportedError("error: stand-ins: " + script.name + ": " + saved.name + " has " +
                                          std::to_string(saved.bytes().count) +
                                          " bytes, more than any buffer of the rank's states that it could lie in");
        }
}

const layers::LayerGraphs* graphs_of(const layers::StageLayers& stage, std::size_t script) {
    if (script >= stage.graphs.layers.size() || !stage.graphs.layers[script]) return nullptr;
    return &*stage.graphs.layers[script];
}

}  // namespace

void make_stand_ins(layers::StageLayers& stage, const Durations& durations, const types::Device& device) {
    if (stage.paired_chunks)
        throw types::UnsupportedError(
            "error: stand-ins: chunks that run side by side (overlap_moe_expert_parallel_comm) are not executed");
    const Bytes weights = give_role(stage, StowageState::parameters).bytes;
    const Bytes sums = give_role(stage, StowageState::gradients).bytes;
    require_weights_fit(stage, weights);
    const ScriptStandIns scripts(durations, device, sums);
    for (std::size_t i = 0; i < stage.scripts.size(); ++i) scripts.make(stage.scripts[i], graphs_of(stage, i));
    scripts.make(stage.optimizer, nullptr);
    for (layers::ChunkLayers& chunk : stage.chunks)
        for (auto* buckets : {&chunk.reductions, &chunk.gathers})
            for (layers::OverlappedBucket& bucket : *buckets) scripts.make(bucket.script, nullptr);
    for (std::optional<LayerScript>& preparation : stage.preparations)
        if (preparation) scripts.make(*preparation, nullptr);
    stage.stand_ins = true;
}

}  // namespace stowage::program
