#include "executor/engine/parameters.hpp"

#include "scenarios/types/check.hpp"

namespace stowage::executor {
namespace {

bool ends_with(const std::string& text, std::string_view end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

InitialValue initial_of(const std::string& name) {
    if (ends_with(name, "bias")) return InitialValue::zero;
    return name.find("norm") != std::string::npos ? InitialValue::one : InitialValue::uniform;
}

}  // namespace

std::vector<PlacedParameter> placed_parameters(const layers::StageLayers& stage) {
    STOWAGE_CHECK(stage.parameter_places.size() == stage.chunks.size(), "the stage says where its parameters lie");
    std::vector<PlacedParameter> placed;
    for (std::size_t chunk = 0; chunk < stage.chunks.size(); ++chunk) {
        const layers::ChunkLayers& frames = stage.chunks[chunk];
        for (std::size_t frame = 0; frame < frames.order.size(); ++frame) {
            const auto& parameters = stage.scripts[frames.order[frame]].parameters;
            const std::int64_t layer = frames.layer_numbers[frame];
            const std::string prefix = layer < 0 ? "" : "layers." + std::to_string(layer) + ".";
            for (std::size_t i = 0; i < parameters.size(); ++i) {
                if (parameters[i].shared) continue;
                placed.push_back({prefix + parameters[i].name, parameters[i].shape,
                                  stage.parameter_places[chunk][frame].at(i), parameters[i].elements(),
                                  initial_of(parameters[i].name)});
            }
        }
    }
    return placed;
}

}  // namespace stowage::executor
