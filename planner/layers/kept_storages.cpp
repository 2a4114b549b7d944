#include "planner/layers/kept_storages.hpp"

#include <algorithm>
#include <map>

namespace stowage::layers {
namespace {

constexpr const char* kFromANeighbour = "pipeline";

enum class Keeps : std::uint8_t { saves, input, nothing };

Keeps kept_by(const ChunkLayers& chunk, std::size_t frame) {
    for (const RecomputedSpan& span : chunk.recomputed)
        if (span.first <= frame && frame <= span.last) return frame == span.first ? Keeps::input : Keeps::nothing;
    return Keeps::saves;
}

/// One virtual stage, frame after frame.
class Frames {
public:
    explicit Frames(std::vector<KeptStorage>& kept) : kept_(kept) {}

    void add(const LayerScript& script, std::int64_t layer, Keeps keeps) {
        std::map<Slot, LayerModule> makers{{kInput, input_maker_}};
        std::map<Slot, std::vector<LayerModule>> savers;
        if (keeps == Keeps::input) savers[kInput] = {};
        for (const Step& step : script.forward) {
            if (step.kind == StepKind::allocate) makers[step.slot] = {layer, std::string(name_of(step.part))};
            if (step.kind != StepKind::save || keeps != Keeps::saves) continue;
            const SavedTensor& saved = script.saved[index(step.saved)];
            const std::string_view module = saved.group ? types::name_of(*saved.group) : name_of(step.part);
            savers[saved.tensor].push_back({layer, std::string(module)});
        }
        for (auto& [slot, names] : savers) {
            const Tensor& tensor = script.tensors[index(slot)];
            if (tensor.persistent) continue;
            names.push_back(makers[slot]);
            kept_.push_back({tensor.bytes(), std::move(names)});
        }
        if (const auto output = makers.find(kOutput); output != makers.end()) input_maker_ = output->second;
    }

private:
    std::vector<KeptStorage>& kept_;
    LayerModule input_maker_{-1, kFromANeighbour};
};

}  // namespace

std::vector<KeptStorage> kept_storages(const StageLayers& stage) {
    std::vector<KeptStorage> kept;
    for (const ChunkLayers& chunk : stage.chunks) {
        Frames frames(kept);
        for (std::size_t frame = 0; frame < chunk.order.size(); ++frame)
            frames.add(stage.scripts[chunk.order[frame]], chunk.layer_numbers[frame], kept_by(chunk, frame));
    }
    return kept;
}

}  // namespace stowage::layers
