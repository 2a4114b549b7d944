#include "planner/layers/stage.hpp"

#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/stowage/stowage_stage.hpp"

namespace stowage::layers {

StageLayers build_stage(const types::Scenario& scenario, std::int64_t pipeline_rank) {
    switch (scenario.implementation) {
        case types::Implementation::megatron: return build_megatron_stage(scenario, pipeline_rank);
        case types::Implementation::stowage: break;
    }
    return build_stowage_stage(scenario, pipeline_rank);
}

}  // namespace stowage::layers
