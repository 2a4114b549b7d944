#include "planner/layers/inventory.hpp"

#include <algorithm>
#include <bit>
#include <set>

#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/mtp.hpp"
#include "planner/layers/stage.hpp"

namespace stowage::layers {
namespace {

bool saved_outside(const LayerScript& script, Slot slot, Module module) {
    return std::any_of(script.saved.begin(), script.saved.end(),
                       [&](const SavedTensor& saved) { return saved.tensor == slot && saved.group != module; });
}

TensorGroup group_of(const LayerScript& script, const Step& commit) {
    TensorGroup group{.module = commit.module, .tensors = {}, .copied = {}, .freed = {}};
    std::set<Slot> gone;
    for (const SavedTensor& saved : script.saved) {
        if (saved.group != commit.module) continue;
        const bool elsewhere = saved_outside(script, saved.tensor, commit.module);
        group.tensors.push_back({saved.name, saved.shape, saved.type, saved.bytes(), saved.form, elsewhere});
        group.copied += saved.bytes();
        const auto& release = script.releases[commit.detail];
        const bool released = std::find(release.begin(), release.end(), saved.tensor) != release.end();
        const bool costs = !script.tensors[index(saved.tensor)].persistent;
        if (costs && (released || !elsewhere)) gone.insert(saved.tensor);
    }
    for (Slot slot : gone) group.freed += script.tensors[index(slot)].bytes();
    return group;
}

std::int64_t count_parameters(const types::Scenario& scenario, bool of_mtp) {
    std::int64_t total = 0;
    for (std::int64_t rank = 0; rank < scenario.parallel.pipeline_model_parallel_size; ++rank)
        for (const Parameter& parameter : stage_parameters(build_stage(scenario, rank)))
            if ((parameter.name.starts_with(kMtpPrefix)) == of_mtp) total += parameter.model_elements;
    return total;
}

}  // namespace

std::int64_t model_parameters(const types::Scenario& scenario) { return count_parameters(scenario, false); }

std::int64_t mtp_parameters(const types::Scenario& scenario) { return count_parameters(scenario, true); }

std::int64_t rank_parameters(const StageLayers& stage) {
    std::int64_t total = 0;
    for (const ChunkLayers& chunk : stage.chunks)
        for (std::size_t script : chunk.order)
            for (const Parameter& parameter : stage.scripts[script].parameters)
                total += parameter.shared ? 0 : parameter.elements();
    return total;
}

StateBytes state_bytes(const StageLayers& stage) {
    StateBytes bytes;
    for (const StateBuffer& state : stage.states) {
        if (state.when == StateBuffer::When::construction || state.when == StateBuffer::When::within_steps) continue;
        switch (state.what) {
            case StateBuffer::What::weights: bytes.weights += state.bytes; break;
            case StateBuffer::What::gradients: bytes.gradients += state.bytes; break;
            case StateBuffer::What::optimizer: bytes.optimizer += state.bytes; break;
            case StateBuffer::What::workspace: bytes.workspace += state.bytes; break;
            case StateBuffer::What::pinned_host: bytes.pinned_host += state.bytes; break;
            case StateBuffer::What::pageable_host: bytes.pageable_host += state.bytes; break;
        }
    }
    return bytes;
}

Bytes pinned_state_blocks(const StageLayers& stage) {
    Bytes total;
    for (const StateBuffer& state : stage.states)
        if (state.what == StateBuffer::What::pinned_host)
            total += Bytes{static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(state.bytes.count)))};
    return total;
}

FlopsByPart flops_by_part(const LayerScript& script) {
    FlopsByPart result;
    for (const auto* steps : {&script.forward, &script.backward})
        for (const Step& step : *steps)
            if (step.kind == StepKind::kernel) result[{step.part, step.phase}] += script.kernels[step.detail].flops;
    return result;
}

double flops(const LayerScript& script, Phase phase) {
    double total = 0;
    for (const auto& [key, value] : flops_by_part(script))
        if (key.second == phase) total += value;
    return total;
}

std::vector<TensorGroup> tensor_groups(const LayerScript& script) {
    std::vector<TensorGroup> groups;
    for (const Step& step : script.forward)
        if (step.kind == StepKind::commit) groups.push_back(group_of(script, step));
    return groups;
}

Bytes saved_bytes(const LayerScript& script) {
    std::set<Slot> storages;
    for (const SavedTensor& saved : script.saved)
        if (!script.tensors[index(saved.tensor)].persistent) storages.insert(saved.tensor);
    Bytes total;
    for (Slot slot : storages) total += script.tensors[index(slot)].bytes();
    return total;
}

}  // namespace stowage::layers
