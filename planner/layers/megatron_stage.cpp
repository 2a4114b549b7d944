#include "planner/layers/megatron_stage.hpp"

#include <iterator>
#include <map>
#include <string>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/embedding.hpp"
#include "planner/layers/head.hpp"
#include "planner/layers/layer_graphs.hpp"
#include "planner/layers/mtp.hpp"
#include "planner/layers/optimizer_step.hpp"
#include "planner/layers/recomputed_spans.hpp"
#include "planner/layers/states.hpp"
#include "planner/layers/support.hpp"
#include "planner/layers/transformer_layer.hpp"
#include "scenarios/types/check.hpp"
#include "scenarios/types/stages.hpp"

namespace stowage::layers {
namespace {

/// Adds chunks to a stage; layers that are alike share a script.
class StageBuilder {
public:
    StageBuilder(StageLayers& stage, const types::Scenario& scenario, const Dimensions& dimensions)
        : stage_(stage), scenario_(scenario), dimensions_(dimensions) {}

    void add_chunk(const types::StageContents& contents) {
        stage_.chunks.emplace_back();
        if (contents.embedding) add("embedding", -1, [&] { return embedding_layer(dimensions_, scenario_); });
        for (std::int64_t i = 0; i < contents.layers; ++i) add_layer(contents.first_layer + i);
        if (contents.mtp_layers > 0) add_mtp(!contents.embedding);
        if (contents.loss)
            add("head", -1, [&] { return head_layer(dimensions_, scenario_, output_weight(scenario_)); });
        ChunkLayers& chunk = stage_.chunks.back();
        chunk.recomputed = recomputed_spans(scenario_.recompute, chunk.layer_numbers);
    }

private:
    void add_layer(std::int64_t number) {
        const LayerTraits traits = traits_of(scenario_.model, number);
        add(name_of(traits), number, [&] { return transformer_layer(dimensions_, scenario_, traits); });
    }

    void add_mtp(bool own_table) {
        add("mtp", -1, [&] { return mtp_layer(dimensions_, scenario_, own_table); });
    }

    /// `kind`: the same text for frames that are alike.
    template <class Build>
    void add(const std::string& kind, std::int64_t number, Build build) {
        const auto [place, is_new] = built_.try_emplace(kind, stage_.scripts.size());
        if (is_new) stage_.scripts.push_back(build());
        stage_.chunks.back().order.push_back(place->second);
        stage_.chunks.back().layer_numbers.push_back(number);
    }

    StageLayers& stage_;
    const types::Scenario& scenario_;
    const Dimensions& dimensions_;
    std::map<std::string, std::size_t> built_;
};

void add_chunks(StageLayers& stage, const types::Scenario& scenario, const Dimensions& dimensions) {
    StageBuilder builder(stage, scenario, dimensions);
    for (const auto& row : types::stages_of(scenario.parallel, scenario.model))
        builder.add_chunk(row[static_cast<std::size_t>(stage.pipeline_rank)]);
}

}  // namespace

StageLayers build_megatron_stage(const types::Scenario& scenario, std::int64_t pipeline_rank) {
    require_supported(scenario);
    STOWAGE_CHECK(pipeline_rank >= 0 && pipeline_rank < scenario.parallel.pipeline_model_parallel_size,
                  "a pipeline rank of the layout");
    const Dimensions dimensions = dimensions_of(scenario);
    StageLayers stage;
    stage.pipeline_rank = pipeline_rank;
    stage.pipeline_size = scenario.parallel.pipeline_model_parallel_size;
    stage.microbatch_group = scenario.parallel.microbatch_group_size();
    stage.overlapped_transfers = scenario.parallel.overlap_p2p_comm;
    stage.paired_chunks = scenario.parallel.overlap_moe_expert_parallel_comm;
    stage.delayed_weight_gradients = scenario.parallel.delay_wgrad_compute;
    add_chunks(stage, scenario, dimensions);
    stage.optimizer = optimizer_step(scenario, dimensions, stage);
    add_overlapped_buckets(scenario, dimensions, stage);
    stage.states = rank_states(scenario, dimensions, stage);
    add_graphs(scenario, stage);
    stage.boundary = Bytes{2 * dimensions.hidden_elements()};
    return stage;
}

std::vector<Parameter> chunk_parameters(const StageLayers& stage, const ChunkLayers& chunk) {
    std::vector<Parameter> parameters;
    for (std::size_t frame = 0; frame < chunk.order.size(); ++frame) {
        const auto& own = stage.scripts[chunk.order[frame]].parameters;
        const std::int64_t number = chunk.layer_numbers[frame];
        const std::string prefix = number < 0 ? "" : "layers." + std::to_string(number) + ".";
        for (Parameter parameter : own) {
            parameter.name = prefix + parameter.name;
            parameters.push_back(std::move(parameter));
        }
    }
    return parameters;
}

std::vector<std::vector<Parameter>> parameters_by_chunk(const StageLayers& stage) {
    std::vector<std::vector<Parameter>> chunks;
    for (const ChunkLayers& chunk : stage.chunks) chunks.push_back(chunk_parameters(stage, chunk));
    return chunks;
}

std::vector<Parameter> stage_parameters(const StageLayers& stage) {
    std::vector<Parameter> parameters;
    for (const ChunkLayers& chunk : stage.chunks) {
        auto own = chunk_parameters(stage, chunk);
        parameters.insert(parameters.end(), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
    }
    return parameters;
}

}  // namespace stowage::layers
