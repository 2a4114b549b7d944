#include "planner/layers/layer_script.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "scenarios/types/check.hpp"

namespace stowage::layers {
namespace {

std::int64_t product(const std::vector<std::int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{});
}

int count_steps(const std::vector<Step>& steps, StepKind kind, SavedIndex saved) {
    int count = 0;
    for (const Step& step : steps) count += step.kind == kind && step.saved == saved ? 1 : 0;
    return count;
}

void check_saves(const LayerScript& script) {
    for (std::size_t i = 0; i < script.saved.size(); ++i) {
        const auto saved = static_cast<SavedIndex>(i);
        STOWAGE_CHECK(count_steps(script.forward, StepKind::save, saved) == 1, script.saved[i].name);
        STOWAGE_CHECK(count_steps(script.backward, StepKind::forget, saved) == 1,
                      script.name + ": saved and never forgotten: " + script.saved[i].name);
    }
}

void check_groups(const LayerScript& script) {
    for (const auto* steps : {&script.forward, &script.backward}) {
        const bool forward = steps == &script.forward;
        types::ModuleSet open;
        types::ModuleSet closed;
        for (const Step& step : *steps) {
            const bool opens = step.kind == (forward ? StepKind::start : StepKind::commit);
            const bool closes = step.kind == (forward ? StepKind::commit : StepKind::start);
            if (opens) {
                STOWAGE_CHECK(!open.contains(step.module) && !closed.contains(step.module), "a group opens once");
                open.insert(step.module);
            }
            if (closes) {
                STOWAGE_CHECK(open.contains(step.module), "a group closes after it opened");
                open.erase(step.module);
                closed.insert(step.module);
            }
        }
        STOWAGE_CHECK(open.empty(), script.name + ": a group stays open");
    }
}

/// Saves made under `rebuild` are numbered from here; they are none of the script's.
constexpr std::size_t kFirstRebuilt = 0x8000;

bool is_rebuilt(SavedIndex saved) { return index(saved) >= kFirstRebuilt; }

/// Of PyTorch and Transformer Engine: a memset is launched in front of a GEMM and of an attention, whose backward has
/// two kernels more. Source: docs/measurements/2026-11-29-peer-prediction.md.
std::int64_t framework_launches(const Kernel& kernel, Phase phase) {
    if (kernel.kind == KernelClass::gemm) return 2 * kernel.count;
    if (kernel.kind != KernelClass::attention) return 1;
    return phase == Phase::backward ? 4 : 2;
}

}  // namespace

std::int64_t Tensor::elements() const { return product(shape); }
Bytes Tensor::bytes() const { return Bytes{elements() * types::size_of(type)}; }
std::int64_t SavedTensor::elements() const { return product(shape); }
Bytes SavedTensor::bytes() const { return Bytes{elements() * types::size_of(type)}; }
std::int64_t Parameter::elements() const { return product(shape); }

std::string_view name_of(Part part) {
    static constexpr std::string_view names[] = {
        "embedding",     "attn_norm",  "qkv_linear", "rotary",        "core_attn",     "attn_proj",  "residual",
        "mlp_norm",      "mlp_fc1",    "mlp_act",    "mlp_fc2",       "router",        "dispatch",   "expert_fc1",
        "moe_act",       "expert_fc2", "combine",    "shared_expert", "latent",        "final_norm", "output_layer",
        "loss",          "optimizer",  "gradients",  "pipeline",      "offload",       "graph",      "mtp",
        "mixer_in_proj", "mixer_conv", "mixer_scan", "mixer_norm",    "mixer_out_proj"};
    return names[static_cast<std::size_t>(part)];
}

std::string_view name_of(Phase phase) {
    static constexpr std::string_view names[] = {"forward", "backward", "weight_gradient", "recompute", "optimizer"};
    return names[static_cast<std::size_t>(phase)];
}

ScriptBuilder::ScriptBuilder(ScriptKind kind, std::string name) : steps_(&script_.forward) {
    script_.kind = kind;
    script_.name = std::move(name);
    script_.tensors.push_back({"input", {0}, DataType::bf16, false});
    script_.tensors.push_back({"grad_output", {0}, DataType::bf16, false});
}

Slot ScriptBuilder::tensor(std::string name, std::vector<std::int64_t> shape, DataType type) {
    script_.tensors.push_back({std::move(name), std::move(shape), type, false});
    return static_cast<Slot>(script_.tensors.size() - 1);
}

Slot ScriptBuilder::held(std::string name, std::vector<std::int64_t> shape, DataType type) {
    const Slot slot = tensor(std::move(name), std::move(shape), type);
    script_.tensors.back().persistent = true;
    return slot;
}

Slot ScriptBuilder::persistent(std::string name, std::vector<std::int64_t> shape, DataType type) {
    const Slot slot = held(std::move(name), std::move(shape), type);
    script_.tensors.back().parameter = true;
    return slot;
}

void ScriptBuilder::boundary(std::vector<std::int64_t> input_shape, std::vector<std::int64_t> output_shape,
                             DataType type) {
    script_.tensors[index(kInput)] = {"input", std::move(input_shape), type, false};
    script_.tensors[index(kGradOutput)] = {"grad_output", std::move(output_shape), type, false};
}

std::size_t ScriptBuilder::parameter(Parameter parameter) {
    script_.parameters.push_back(std::move(parameter));
    return script_.parameters.size() - 1;
}

void ScriptBuilder::begin_forward(Part part) {
    steps_ = &script_.forward;
    part_ = part;
    phase_ = script_.kind == ScriptKind::optimizer ? Phase::optimizer : Phase::forward;
}

void ScriptBuilder::begin_backward(Part part) {
    steps_ = &script_.backward;
    part_ = part;
    phase_ = Phase::backward;
}

void ScriptBuilder::step(Step step) {
    step.part = part_;
    step.phase = phase_;
    steps_->push_back(step);
}

Saving ScriptBuilder::saving(Saving saving) { return std::exchange(saving_, saving); }

int& ScriptBuilder::rebuilt(Slot slot) {
    if (rebuilt_.size() < script_.tensors.size()) rebuilt_.resize(script_.tensors.size());
    return rebuilt_[index(slot)];
}

void ScriptBuilder::graph_ends(Slot input, Slot gradient) {
    script_.graph_input = input;
    script_.graph_gradient = gradient;
}

void ScriptBuilder::edge(GraphEdge edge) {
    if (saving_ != Saving::autograd) return;
    const bool forward = steps_ == &script_.forward;
    (forward ? script_.forward_edges : script_.backward_edges)[static_cast<std::size_t>(edge)] = steps_->size();
}

void ScriptBuilder::allocate(Slot slot) {
    if (saving_ == Saving::rebuild && index(slot) < script_.tensors.size()) rebuilt(slot) = 1;
    step({.kind = StepKind::allocate, .slot = slot});
}

void ScriptBuilder::drop(Slot slot) {
    if (index(slot) < script_.tensors.size() && rebuilt(slot) > 0) {
        --rebuilt(slot);
        if (rebuilt(slot) > 0) return;
    }
    step({.kind = StepKind::drop, .slot = slot});
}

void ScriptBuilder::kernel(Kernel kernel) {
    if (kernel.call.call != Call::none)
        kernel.launches = launches_of(kernel.call);
    else if (!kernel.measured)
        kernel.launches = framework_launches(kernel, phase_);
    script_.kernels.push_back(std::move(kernel));
    step({.kind = StepKind::kernel, .detail = static_cast<std::uint32_t>(script_.kernels.size() - 1)});
}

void ScriptBuilder::collective(Collective collective) {
    script_.collectives.push_back(std::move(collective));
    step({.kind = StepKind::collective, .detail = static_cast<std::uint32_t>(script_.collectives.size() - 1)});
}

void ScriptBuilder::join_collectives() { step({.kind = StepKind::join_collectives}); }
void ScriptBuilder::host_sync(Bytes copied) {
    step({.kind = StepKind::host_sync, .detail = static_cast<std::uint32_t>(copied.count)});
}

void ScriptBuilder::start(Module module) {
    if (saving_ == Saving::autograd) step({.kind = StepKind::start, .module = module});
}

void ScriptBuilder::commit(Module module, std::vector<Slot> release) {
    if (saving_ != Saving::autograd) return;
    script_.releases.push_back(std::move(release));
    step({.kind = StepKind::commit,
          .module = module,
          .detail = static_cast<std::uint32_t>(script_.releases.size() - 1)});
}

SavedIndex ScriptBuilder::save(Slot slot, std::optional<Module> group) {
    const Tensor& tensor = script_.tensors[index(slot)];
    return save_view(tensor.name, slot, group, tensor.shape, CopyForm::contiguous);
}

SavedIndex ScriptBuilder::save_view(std::string name, Slot slot, std::optional<Module> group,
                                    std::vector<std::int64_t> shape, CopyForm form) {
    if (saving_ == Saving::nothing) return static_cast<SavedIndex>(kFirstRebuilt - 1);  // nobody may forget it
    const bool discarded = std::find(discarded_.begin(), discarded_.end(), slot) != discarded_.end();
    if (saving_ == Saving::rebuild || discarded) {
        if (discarded)
            slot = kOutput;  // nobody's: not counted
        else if (rebuilt(slot) > 0)
            ++rebuilt(slot);
        rebuilt_saves_.push_back(slot);
        return static_cast<SavedIndex>(kFirstRebuilt + rebuilt_saves_.size() - 1);
    }
    const DataType type = script_.tensors[index(slot)].type;
    script_.saved.push_back({std::move(name), slot, group, std::move(shape), type, form});
    const auto saved = static_cast<SavedIndex>(script_.saved.size() - 1);
    step({.kind = StepKind::save, .saved = saved});
    return saved;
}

void ScriptBuilder::read(SavedIndex saved) {
    if (is_rebuilt(saved)) return;
    STOWAGE_CHECK(index(saved) < script_.saved.size(), "reads a tensor that was not saved");
    step({.kind = StepKind::read, .saved = saved});
}

void ScriptBuilder::forget(SavedIndex saved) {
    if (is_rebuilt(saved)) {
        const Slot slot = rebuilt_saves_[index(saved) - kFirstRebuilt];
        if (slot != kOutput && rebuilt(slot) > 0) drop(slot);
        return;
    }
    STOWAGE_CHECK(index(saved) < script_.saved.size(), "forgets a tensor that was not saved");
    step({.kind = StepKind::forget, .saved = saved});
}

CallOperand ScriptBuilder::operand(SavedIndex saved) const {
    if (is_rebuilt(saved)) {
        const Slot slot = rebuilt_saves_[index(saved) - kFirstRebuilt];
        STOWAGE_CHECK(slot != kOutput, "a tensor that is made again is no operand of its own");
        return {CallOperand::Kind::tensor, static_cast<std::uint16_t>(slot), Access::read};
    }
    STOWAGE_CHECK(index(saved) < script_.saved.size(), "an operand that was not saved");
    return {CallOperand::Kind::saved, static_cast<std::uint16_t>(saved), Access::read};
}

LayerScript ScriptBuilder::build() {
    if (script_.kind != ScriptKind::optimizer) {
        check_saves(script_);
        check_groups(script_);
    }
    return std::move(script_);
}

}  // namespace stowage::layers
