#include "tests/support/peer_stage_run.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/types/check.hpp"

namespace stowage::testing {
namespace {

using layers::StateBuffer;
using program::BodyId;
using program::Instance;
using program::Operation;
using program::OperationKind;
using program::RunStage;
using program::Scope;
using program::StepProgram;
using types::Bytes;

/// Of GEMMs in the first iteration, against later: four layers' forwards 12.9 ms against 14.2 and backwards 34.3
/// against 36.4, of which three quarters are GEMMs (docs/measurements/2026-11-29-h200-peer-memory.json).
constexpr double kCoolGemmTime = 0.9;

constexpr std::string_view kGradient = " weight gradient";
constexpr std::string_view kAccumulation = "accumulate weight gradient";

bool is_gemm(const Operation& operation) {
    return operation.kind == OperationKind::compute && operation.kernel_class == types::KernelClass::gemm;
}

class Rewriter {
public:
    Rewriter(StepProgram& program, const layers::StageLayers& stage) : program_(program), stage_(stage) {}

    void make_weights_in_fp32() {
        const auto first = static_cast<std::uint32_t>(program_.frame_slots.size()) - 2;
        const std::uint32_t base = program_.frame_slots.back() - program_.frame_slots[first];
        Instance& setup = sequence(RunStage::setup).front();
        std::vector<Operation> wide;
        std::vector<Operation> narrow;
        const Scope scope = add_scope(setup, first);
        for (Operation operation : operations_of(setup)) {
            narrow.push_back(operation);
            if (stage_.states[operation.slot].what != StateBuffer::What::weights) continue;
            operation.scope = scope;
            operation.slot = base + static_cast<std::uint32_t>(wide.size());
            operation.bytes = Bytes{2 * operation.bytes.count};
            wide.push_back(operation);
            operation.kind = OperationKind::free;
            narrow.push_back(operation);
        }
        program_.frame_slots.back() += static_cast<std::uint32_t>(wide.size());
        wide.insert(wide.end(), narrow.begin(), narrow.end());
        setup.body = add_body({"setup of the peer", std::move(wide)});
    }

    void make_late_states() {
        std::vector<Instance>& first_step = sequence(RunStage::record);
        make_with(first_step.front(), "cublas workspace", is_gemm);
        const auto backward = std::find_if(first_step.begin(), first_step.end(),
                                           [&](const Instance& instance) { return is_backward(instance); });
        make_with(*backward, "cublas workspace of autograd", is_gemm);
        wait_in(*backward);
        const auto last = std::find_if(first_step.begin(), first_step.end(), [&](const Instance& instance) {
            return is_backward(instance) && instance.layer == 0;
        });
        make_with(*last, "input gradient",
                  [](const Operation& operation) { return operation.part == layers::Part::attn_norm; });
    }

    void cool_first_iteration(double gemm_time) {
        for (Instance& instance : sequence(RunStage::record)) {
            const auto [known, added] = cool_.try_emplace(instance.body, instance.body);
            if (added) {
                program::Body body = program_.bodies[program::index(instance.body)];
                for (Operation& operation : body.operations)
                    if (is_gemm(operation))
                        operation.duration = types::Nanoseconds{
                            std::llround(gemm_time * static_cast<double>(operation.duration.count()))};
                known->second = add_body(std::move(body));
            }
            instance.body = known->second;
        }
    }

    void keep_gradients(RunStage stage) {
        std::vector<Instance>& instances = sequence(stage);
        std::vector<Instance> releases;
        for (Instance& instance : instances) {
            if (instance.microbatch != 0 || !is_backward(instance)) continue;
            instance.body = keeping(instance);
            releases.push_back(release_of(instance));
        }
        // Before the optimizer's body, the last one; layers in the order of the parameters.
        instances.insert(instances.end() - 1, releases.rbegin(), releases.rend());
    }

    /// Frees each output behind the forward of the next microbatch, the last one at the step's end.
    void hold_outputs(RunStage stage) {
        std::vector<Instance> held;
        std::vector<Instance> result;
        for (Instance instance : sequence(stage)) {
            if (is_head(instance)) {
                const bool forward = drops_output(instance) == nullptr;
                if (forward && !held.empty()) {
                    result.push_back(held.back());
                    held.pop_back();
                } else if (!forward) {
                    held.push_back(hold(instance));
                }
            }
            result.push_back(instance);
        }
        result.insert(result.end() - 1, held.begin(), held.end());
        sequence(stage) = std::move(result);
    }

    /// Its iterations are measured one by one.
    void wait_at_end(RunStage stage) {
        Instance wait = sequence(stage).back();
        wait.body = add_body({"end of the iteration", {{.kind = OperationKind::device_sync}}});
        sequence(stage).push_back(wait);
    }

private:
    std::vector<Instance>& sequence(RunStage stage) { return program_.sequence[static_cast<std::size_t>(stage)]; }
    [[nodiscard]] const std::vector<Operation>& operations_of(const Instance& instance) const {
        return program_.bodies[program::index(instance.body)].operations;
    }
    BodyId add_body(program::Body body) {
        program_.bodies.push_back(std::move(body));
        return static_cast<BodyId>(program_.bodies.size() - 1);
    }

    [[nodiscard]] const layers::LayerScript& script_of(const Instance& instance) const {
        const layers::ChunkLayers& chunk = stage_.chunks.front();
        return stage_
            .scripts[is_head(instance) ? chunk.order.back() : chunk.order[static_cast<std::size_t>(instance.layer)]];
    }
    [[nodiscard]] bool is_head(const Instance& instance) const {
        return instance.microbatch >= 0 && instance.layer < 0;
    }
    [[nodiscard]] bool is_gradient(const Instance& instance, const Operation& operation) const {
        const std::vector<layers::Tensor>& tensors = script_of(instance).tensors;
        return operation.scope == program::kOwnFrame && operation.slot < tensors.size() &&
               tensors[operation.slot].name.ends_with(kGradient);
    }
    [[nodiscard]] bool is_backward(const Instance& instance) const {
        return instance.microbatch >= 0 && instance.layer >= 0 &&
               std::any_of(operations_of(instance).begin(), operations_of(instance).end(),
                           [&](const Operation& operation) {
                               return operation.kind == OperationKind::allocate && is_gradient(instance, operation);
                           });
    }

    /// Gives the instance its own scopes with one more, that of `frame`.
    Scope add_scope(Instance& instance, std::uint32_t frame) {
        Scope scopes = program::kNeighbourFrame;
        for (const Operation& operation : operations_of(instance)) scopes = std::max(scopes, operation.scope);
        const auto begin = static_cast<std::uint32_t>(program_.scope_frames.size());
        for (std::uint32_t i = 0; i <= scopes; ++i) {
            const std::size_t from = std::min<std::size_t>(instance.frames_begin + i, begin - 1);
            program_.scope_frames.push_back(program_.scope_frames[from]);
        }
        program_.scope_frames.push_back(frame);
        instance.frames_begin = begin;
        return static_cast<Scope>(scopes + 1);
    }

    /// Moves the allocation of a state from the set-up to the first operation of the instance that `before` accepts.
    template <class Before>
    void make_with(Instance& instance, std::string_view name, Before before) {
        const Instance& setup = sequence(RunStage::setup).front();
        std::vector<Operation>& set_up = program_.bodies[program::index(setup.body)].operations;
        const auto state = std::find_if(set_up.begin(), set_up.end(), [&](const Operation& operation) {
            return operation.scope == program::kOwnFrame && stage_.states[operation.slot].name == name;
        });
        STOWAGE_CHECK(state != set_up.end(), "the peer's states have their names");
        Operation allocation = *state;
        set_up.erase(state);
        program::Body body = program_.bodies[program::index(instance.body)];
        allocation.scope = add_scope(instance, program_.scope_frames[setup.frames_begin]);
        const auto place = std::find_if(body.operations.begin(), body.operations.end(), before);
        STOWAGE_CHECK(place != body.operations.end(), "the body has the operation");
        body.operations.insert(place, allocation);
        body.name += ", " + std::string(name);
        instance.body = add_body(std::move(body));
    }

    /// The host waits for the device at the instance's first attention kernel.
    void wait_in(Instance& instance) {
        program::Body body = program_.bodies[program::index(instance.body)];
        const auto place = std::find_if(body.operations.begin(), body.operations.end(), [](const Operation& operation) {
            return operation.kind == OperationKind::compute && operation.kernel_class == types::KernelClass::attention;
        });
        STOWAGE_CHECK(place != body.operations.end(), "a layer's backward has attention");
        body.operations.insert(place, {.kind = OperationKind::stream_sync, .stream = program::Stream::main});
        body.name += ", first attention";
        instance.body = add_body(std::move(body));
    }

    /// The instance's body without the additions and without the gradients' frees.
    BodyId keeping(const Instance& instance) {
        const auto known = keeping_.find(instance.body);
        if (known != keeping_.end()) return known->second;
        program::Body body = program_.bodies[program::index(instance.body)];
        body.name += ", first gradients";
        const auto dropped = [&](const Operation& operation) {
            if (operation.kind == OperationKind::compute) return program_.labels[operation.detail] == kAccumulation;
            return operation.kind == OperationKind::free && is_gradient(instance, operation);
        };
        body.operations.erase(std::remove_if(body.operations.begin(), body.operations.end(), dropped),
                              body.operations.end());
        return keeping_[instance.body] = add_body(std::move(body));
    }

    /// Frees the gradients of the instance's layer in the order of its parameters.
    Instance release_of(const Instance& instance) {
        Instance release = instance;
        const layers::LayerScript* const script = &script_of(instance);
        const auto known = releasing_.find(script);
        if (known != releasing_.end()) {
            release.body = known->second;
            return release;
        }
        program::Body body{"release of gradients", {}};
        const std::vector<layers::Tensor>& tensors = script_of(instance).tensors;
        for (const std::string_view parameter : {"attn_norm", "qkv", "proj", "mlp_norm", "fc1", "fc2"})
            for (std::size_t slot = 0; slot < tensors.size(); ++slot)
                if (tensors[slot].name == std::string(parameter) + std::string(kGradient))
                    body.operations.push_back({.kind = OperationKind::free,
                                               .slot = static_cast<std::uint32_t>(slot),
                                               .bytes = tensors[slot].bytes()});
        release.body = releasing_[script] = add_body(std::move(body));
        return release;
    }

    /// Of a head's backward: its free of the layers' output.
    [[nodiscard]] const Operation* drops_output(const Instance& instance) const {
        for (const Operation& operation : operations_of(instance))
            if (operation.kind == OperationKind::free && operation.scope == program::kOwnFrame &&
                operation.slot == static_cast<std::uint32_t>(layers::kInput))
                return &operation;
        return nullptr;
    }

    /// Takes the free of the output out of a head's backward. Result: an instance that does it.
    Instance hold(Instance& backward) {
        const Operation* const drop = drops_output(backward);
        if (!held_output_) {
            program::Body kept = program_.bodies[program::index(backward.body)];
            kept.operations.erase(kept.operations.begin() + (drop - operations_of(backward).data()));
            const Operation free = *drop;
            held_output_ = {add_body(std::move(kept)), add_body({"release of the output", {free}})};
        }
        Instance release = backward;
        release.body = held_output_->second;
        backward.body = held_output_->first;
        return release;
    }

    StepProgram& program_;
    const layers::StageLayers& stage_;
    std::map<BodyId, BodyId> cool_;
    std::map<BodyId, BodyId> keeping_;
    std::map<const layers::LayerScript*, BodyId> releasing_;
    std::optional<std::pair<BodyId, BodyId>> held_output_;  ///< the head's backward, and the free
};

}  // namespace

void run_as_the_peer(program::StepProgram& program, const layers::StageLayers& stage) {
    Rewriter rewriter(program, stage);
    rewriter.make_weights_in_fp32();
    rewriter.cool_first_iteration(kCoolGemmTime);
    for (const RunStage steps : {RunStage::record, RunStage::steady}) {
        rewriter.keep_gradients(steps);
        rewriter.hold_outputs(steps);
        rewriter.wait_at_end(steps);
    }
    rewriter.make_late_states();
}

}  // namespace stowage::testing
