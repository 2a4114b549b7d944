#include "planner/layers/stowage/stowage_states.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "planner/layers/stowage/stowage_writer.hpp"

namespace stowage::layers {
namespace {

/// Vectorised kernels and GEMMs want operands on 256 bytes.
constexpr std::int64_t kPlace = 128;
constexpr std::int64_t kAlignment = 256;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Scales, the weight, and the weight transposed.
Fp8Place next_place(const Parameter& parameter, std::int64_t& next) {
    if (!parameter.fp8_copy) return {};
    Fp8Place place;
    place.scales = next;
    place.plain = place.scales + kAlignment;
    place.transposed = place.plain + aligned(parameter.elements());
    next = place.transposed + aligned(parameter.elements());
    return place;
}

}  // namespace

std::int64_t place_length(std::int64_t elements) { return (elements + kPlace - 1) / kPlace * kPlace; }

std::int64_t place_parameters(StageLayers& stage) {
    std::int64_t next = 0;
    std::map<std::string, std::int64_t> places;  // the first one of each name
    for (const ChunkLayers& chunk : stage.chunks) {
        auto& frames = stage.parameter_places.emplace_back();
        for (const std::size_t script : chunk.order) {
            auto& own = frames.emplace_back();
            for (const Parameter& parameter : stage.scripts[script].parameters) {
                own.push_back(parameter.shared ? places.at(parameter.name) : next);
                if (parameter.shared) continue;
                places.try_emplace(parameter.name, next);
                next += place_length(parameter.elements());
            }
        }
    }
    return std::max(next, kPlace);
}

Bytes place_fp8_weights(StageLayers& stage) {
    std::vector<std::vector<std::vector<Fp8Place>>> stages;
    std::int64_t next = 0;
    for (const ChunkLayers& chunk : stage.chunks) {
        auto& frames = stages.emplace_back();
        for (const std::size_t script : chunk.order) {
            auto& places = frames.emplace_back();
            for (const Parameter& parameter : stage.scripts[script].parameters)
                places.push_back(next_place(parameter, next));
        }
    }
    if (next > 0) stage.fp8_places = std::move(stages);
    return Bytes{next};
}

std::vector<StateBuffer> stowage_states(const types::Scenario& scenario, const Dimensions& dimensions,
                                        const OptimizerShare& share, Bytes fp8_weights) {
    const std::int64_t elements = share.elements;
    using What = StateBuffer::What;
    using When = StateBuffer::When;
    ScriptBuilder none(ScriptKind::optimizer, "");
    const StowageWriter writer(none, dimensions, scenario);
    std::vector<StateBuffer> states{
        {"parameters", Bytes{2 * elements}, What::weights, When::setup, StowageState::parameters},
        {"gradients", Bytes{writer.gradient_bytes() * elements}, What::gradients, When::setup, StowageState::gradients},
        {"losses", Bytes{4 * scenario.microbatches()}, What::workspace, When::setup, StowageState::losses},
        {"GEMM workspace", Bytes{kGemmWorkspaceBytes}, What::workspace, When::setup, StowageState::workspace},
    };
    const std::int64_t turned =
        scenario.model.multi_latent_attention ? scenario.model.qk_pos_emb_head_dim : dimensions.head_size;
    if (scenario.model.position_embedding_type == types::PositionEmbedding::rope)
        states.push_back({"rotary table", Bytes{4 * dimensions.sequence * (turned / 2) * 2}, What::workspace,
                          When::setup, StowageState::rotary_table});
    if (scenario.model.has_experts())
        states.push_back({"assignment of tokens to experts", Bytes{4 * dimensions.local_tokens * dimensions.topk},
                          What::workspace, When::setup, StowageState::assignment});
    for (StateBuffer& state : optimizer_states(share)) states.push_back(std::move(state));
    if (fp8_weights > Bytes{0})
        states.push_back({"FP8 weights", fp8_weights, What::weights, When::setup, StowageState::fp8_weights});
    return states;
}

}  // namespace stowage::layers
