#include "planner/layers/megatron_stage.hpp"

#include <map>
#include <numeric>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/embedding.hpp"
#include "planner/layers/head.hpp"
#include "planner/layers/optimizer_step.hpp"
#include "planner/layers/states.hpp"
#include "planner/layers/support.hpp"
#include "planner/layers/transformer_layer.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::layers {
namespace {

/// Adds frames to a stage; scripts are built once per kind.
class StageBuilder {
public:
    StageBuilder(StageLayers& stage, const Dimensions& dimensions, const types::Model& model)
        : stage_(stage), dimensions_(dimensions), model_(model) {}

    void add_embedding() {
        add(ScriptKind::embedding, -1, [&] { return embedding_layer(dimensions_, model_); });
    }
    void add_head(OutputWeight weight) {
        add(ScriptKind::head, -1, [&] { return head_layer(dimensions_, model_, weight); });
    }
    void add_layer(std::int64_t number) {
        if (model_.is_moe_layer(number))
            add(ScriptKind::moe_layer, number, [&] { return moe_layer(dimensions_, model_); });
        else
            add(ScriptKind::dense_layer, number, [&] { return dense_layer(dimensions_, model_); });
    }

private:
    template <class Build>
    void add(ScriptKind kind, std::int64_t number, Build build) {
        const auto [place, is_new] = built_.try_emplace(kind, stage_.scripts.size());
        if (is_new) stage_.scripts.push_back(build());
        stage_.order.push_back(place->second);
        stage_.layer_numbers.push_back(number);
    }

    StageLayers& stage_;
    const Dimensions& dimensions_;
    const types::Model& model_;
    std::map<ScriptKind, std::size_t> built_;
};

void add_frames(StageLayers& stage, const types::Scenario& scenario, const Dimensions& dimensions) {
    const auto counts = types::layers_per_stage(scenario.parallel, scenario.model.num_layers).value();
    const auto here = counts.begin() + stage.pipeline_rank;
    const std::int64_t first = std::accumulate(counts.begin(), here, std::int64_t{0});
    StageBuilder builder(stage, dimensions, scenario.model);
    if (stage.pipeline_rank == 0) builder.add_embedding();
    for (std::int64_t layer = first; layer < first + *here; ++layer) builder.add_layer(layer);
    if (stage.pipeline_rank + 1 == stage.pipeline_size) builder.add_head(output_weight(scenario));
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
    add_frames(stage, scenario, dimensions);
    const std::vector<Parameter> parameters = stage_parameters(stage);
    stage.optimizer = optimizer_step(scenario, dimensions, pipeline_rank, parameters);
    stage.states = rank_states(scenario, dimensions, pipeline_rank, parameters);
    stage.boundary = Bytes{2 * dimensions.hidden_elements()};
    return stage;
}

std::vector<Parameter> stage_parameters(const StageLayers& stage) {
    std::vector<Parameter> parameters;
    for (std::size_t frame = 0; frame < stage.order.size(); ++frame) {
        const auto& own = stage.scripts[stage.order[frame]].parameters;
        const std::int64_t number = stage.layer_numbers[frame];
        const std::string prefix = number < 0 ? "" : "layers." + std::to_string(number) + ".";
        for (Parameter parameter : own) {
            parameter.name = prefix + parameter.name;
            parameters.push_back(std::move(parameter));
        }
    }
    return parameters;
}

}  // namespace stowage::layers
