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

std::vector<StateBuffer> stowage_states(const types::Scenario& scenario, const Dimensions& dimensions,
                                        const OptimizerShare& share) {
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
    return states;
}

}  // namespace stowage::layers
