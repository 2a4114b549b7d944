#include "planner/program/recorded_layers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "planner/program/recorded_script.hpp"
#include "planner/program/recorded_times.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::program {
namespace {

using layers::Phase;

/// One layer's pass of one microbatch in one step.
struct Pass {
    RecordedLayer layer;  ///< without what it saves
    std::vector<Nanoseconds> forward;
    std::vector<Nanoseconds> backward;
};

using PassKey = std::tuple<std::int32_t, std::uint32_t, std::int32_t>;  ///< layer, step, microbatch

bool contains_any(std::string_view text, std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(),
                       [text](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

std::string lower_case(std::string_view text) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return lower;
}

std::map<PassKey, Pass> passes_of(const RecordedOperations& operations, const recording::Recording& recording) {
    std::map<PassKey, Pass> passes;
    for (const RecordedOperation& operation : operations.operations) {
        const std::optional<KernelName> name = name_of_site(recording.sites.at(operation.site));
        if (!name || operation.layer < 0 || operation.microbatch < 0) continue;
        Pass& pass = passes[{operation.layer, operation.step, operation.microbatch}];
        const RecordedKernel kernel{name->part, name->phase, class_of_kernel(recording.names.at(operation.name))};
        const bool forward = name->phase == Phase::forward;
        (forward ? pass.layer.forward : pass.layer.backward).push_back(kernel);
        (forward ? pass.forward : pass.backward).push_back(operation.span + operation.gap.value_or(operations.gap));
    }
    return passes;
}

/// Of the first microbatch that the recording has: sizes of storages, by layer and module.
std::map<std::int32_t, std::map<layers::Part, std::vector<Bytes>>> saved_by_layer(
    const recording::Recording& recording) {
    std::map<std::int32_t, std::map<layers::Part, std::vector<Bytes>>> saved;
    std::optional<std::int32_t> first;
    std::set<std::uint32_t> seen;
    for (const recording::Group& group : recording.groups) {
        const std::optional<KernelName> name = name_of_site({group.module, "forward", ""});
        if (!name || group.layer < 0 || group.microbatch != first.value_or(group.microbatch)) continue;
        first = group.microbatch;
        for (const recording::Tensor& tensor : group.tensors)
            if (!tensor.parameter && tensor.bytes > Bytes{} && seen.insert(tensor.storage).second)
                saved[group.layer][name->part].push_back(tensor.bytes);
    }
    return saved;
}

/// Layers that are alike, and what their kernels take.
class Kinds {
public:
    void add(std::int32_t layer, const RecordedLayer& recorded, const Pass& pass) {
        Kind& kind = kinds_[recorded];
        kind.times.resize(pass.forward.size() + pass.backward.size());
        std::size_t place = 0;
        for (const auto* times : {&pass.forward, &pass.backward})
            for (const Nanoseconds time : *times) kind.times[place++] += static_cast<double>(time.count());
        ++kind.passes;
        of_layer_.try_emplace(layer, recorded);
    }
    [[nodiscard]] const RecordedLayer* of(std::int32_t layer) const {
        const auto found = of_layer_.find(layer);
        return found == of_layer_.end() ? nullptr : &found->second;
    }
    [[nodiscard]] std::vector<Nanoseconds> times(const RecordedLayer& recorded) const {
        const Kind& kind = kinds_.at(recorded);
        std::vector<Nanoseconds> times;
        for (const double sum : kind.times) times.emplace_back(std::llround(sum / static_cast<double>(kind.passes)));
        return times;
    }

private:
    struct Kind {
        std::vector<double> times;
        std::int64_t passes = 0;
    };
    std::map<RecordedLayer, Kind> kinds_;
    std::map<std::int32_t, RecordedLayer> of_layer_;
};

Kinds kinds_of(const RecordedOperations& operations, const recording::Recording& recording) {
    const auto saved = saved_by_layer(recording);
    Kinds kinds;
    for (const auto& [key, pass] : passes_of(operations, recording)) {
        if (pass.forward.empty()) continue;
        RecordedLayer recorded = pass.layer;
        const std::int32_t layer = std::get<0>(key);
        if (const auto found = saved.find(layer); found != saved.end()) recorded.saved = found->second;
        kinds.add(layer, recorded, pass);
    }
    return kinds;
}

void require_plain(const layers::StageLayers& stage) {
    if (stage.graphs.layers.empty() && !stage.paired_chunks) return;
    throw types::InputError(
        "error: a recorded layer has no parts that a graph of its own could capture, and no exchanges to run another "
        "chunk beside\nhint: cuda_graph_impl: none or full_iteration, without overlapped expert parallelism");
}

/// Puts scripts of recorded layers in place of others.
class Replacement {
public:
    Replacement(layers::StageLayers& stage, const Kinds& kinds, const types::Device& device)
        : stage_(stage), kinds_(kinds), device_(device) {}

    bool replace(layers::ChunkLayers& chunk, std::size_t frame) {
        const RecordedLayer* const recorded = kinds_.of(static_cast<std::int32_t>(chunk.layer_numbers[frame]));
        if (chunk.layer_numbers[frame] < 0 || recorded == nullptr) return false;
        const std::size_t replaced = chunk.order[frame];
        const auto [place, is_new] = scripts_.try_emplace({*recorded, replaced}, stage_.scripts.size());
        if (is_new) {
            layers::LayerScript script =
                recorded_script(*recorded, kinds_.times(*recorded), stage_.scripts[replaced], device_);
            stage_.scripts.push_back(std::move(script));
            if (!stage_.downgraded.empty()) stage_.downgraded.emplace_back();
        }
        chunk.order[frame] = place->second;
        return true;
    }

private:
    layers::StageLayers& stage_;
    const Kinds& kinds_;
    const types::Device& device_;
    std::map<std::pair<RecordedLayer, std::size_t>, std::size_t> scripts_;
};

}  // namespace

types::KernelClass class_of_kernel(std::string_view name) {
    const std::string lower = lower_case(name);
    if (contains_any(lower, {"attention", "flash", "fmha", "sdpa"})) return types::KernelClass::attention;
    if (contains_any(lower, {"gemm", "cutlass", "nvjet", "cublas", "xmma"})) return types::KernelClass::gemm;
    return types::KernelClass::memory_bound;
}

std::int64_t use_recorded_layers(layers::StageLayers& stage, const RecordedOperations& operations,
                                 const recording::Recording& recording, const types::Device& device) {
    require_plain(stage);
    const Kinds kinds = kinds_of(operations, recording);
    Replacement replacement(stage, kinds, device);
    std::int64_t replaced = 0;
    for (layers::ChunkLayers& chunk : stage.chunks) {
        const std::int64_t before = replaced;
        for (std::size_t frame = 0; frame < chunk.order.size(); ++frame)
            if (replacement.replace(chunk, frame)) ++replaced;
        if (replaced > before) chunk.recomputed.clear();  // what ran again was recorded as a part of the backward
    }
    return replaced;
}

}  // namespace stowage::program
