#include "planner/layers/stowage/stowage_stage.hpp"

#include <map>

#include "planner/layers/layer_graphs.hpp"
#include "planner/layers/recomputed_spans.hpp"
#include "planner/layers/stowage/stowage_scripts.hpp"
#include "planner/layers/stowage/stowage_states.hpp"
#include "planner/layers/support.hpp"
#include "scenarios/types/check.hpp"
#include "scenarios/types/stages.hpp"

namespace stowage::layers {
namespace {

/// Adds chunks to a stage; frames of the same kind share a script.
class Chunks {
public:
    Chunks(StageLayers& stage, const types::Scenario& scenario, const Dimensions& dimensions)
        : stage_(stage), scenario_(scenario), dimensions_(dimensions) {}

    void add(const types::StageContents& contents) {
        stage_.chunks.emplace_back();
        if (contents.embedding) add(ScriptKind::embedding, -1, stowage_embedding);
        for (std::int64_t i = 0; i < contents.layers; ++i) add_layer(contents.first_layer + i);
        if (contents.mtp_layers > 0) add_mtp(!contents.embedding);
        if (contents.loss) add(ScriptKind::head, -1, stowage_head);
        ChunkLayers& chunk = stage_.chunks.back();
        chunk.recomputed = recomputed_spans(scenario_.recompute, chunk.layer_numbers);
    }

private:
    void add_layer(std::int64_t number) {
        if (scenario_.model.is_moe_layer(number))
            add(ScriptKind::moe_layer, number, stowage_moe_layer);
        else
            add(ScriptKind::dense_layer, number, stowage_layer);
    }

    /// One stage of a rank predicts at most.
    void add_mtp(bool own_table) {
        add(ScriptKind::mtp, -1, [own_table](const Dimensions& dimensions, const types::Scenario& scenario) {
            return stowage_mtp(dimensions, scenario, own_table);
        });
    }

    template <class Build>
    void add(ScriptKind kind, std::int64_t number, Build build) {
        const auto [place, is_new] = built_.try_emplace(kind, stage_.scripts.size());
        if (is_new) stage_.scripts.push_back(build(dimensions_, scenario_));
        stage_.chunks.back().order.push_back(place->second);
        stage_.chunks.back().layer_numbers.push_back(number);
    }

    StageLayers& stage_;
    const types::Scenario& scenario_;
    const Dimensions& dimensions_;
    std::map<ScriptKind, std::size_t> built_;
};

}  // namespace

StageLayers build_stowage_stage(const types::Scenario& scenario, std::int64_t pipeline_rank) {
    require_supported(scenario);
    STOWAGE_CHECK(pipeline_rank >= 0 && pipeline_rank < scenario.parallel.pipeline_model_parallel_size,
                  "a pipeline rank of the layout");
    const Dimensions dimensions = dimensions_of(scenario);
    StageLayers stage;
    stage.pipeline_rank = pipeline_rank;
    stage.pipeline_size = scenario.parallel.pipeline_model_parallel_size;
    stage.microbatch_group = scenario.parallel.microbatch_group_size();
    stage.overlapped_transfers = scenario.parallel.overlap_p2p_comm;
    Chunks chunks(stage, scenario, dimensions);
    for (const auto& row : types::stages_of(scenario.parallel, scenario.model))
        chunks.add(row[static_cast<std::size_t>(pipeline_rank)]);
    const OptimizerShare share = optimizer_share(scenario, stage, place_parameters(stage));
    stage.optimizer = stowage_optimizer(scenario, dimensions, share);
    stage.states = stowage_states(scenario, dimensions, share);
    add_graphs(scenario, stage);
    // Our own layers lose a norm's group to a graph that there is, not to one that is only listed.
    if (stage.graphs.impl == types::CudaGraphImpl::none) stage.downgraded.assign(stage.scripts.size(), {});
    stage.graphs.attention_mask = Bytes{};  // the kernels know that attention is causal
    stage.boundary = Bytes{2 * dimensions.hidden_elements()};
    return stage;
}

}  // namespace stowage::layers
