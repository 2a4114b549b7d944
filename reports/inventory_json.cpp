#include "reports/inventory_json.hpp"

#include <set>

#include "planner/layers/inventory.hpp"
#include "scenarios/types/data_type.hpp"

namespace stowage::reports {
namespace {

Json tensor_json(const layers::GroupTensor& tensor) {
    return {{"name", tensor.name},
            {"shape", tensor.shape},
            {"type", std::string(types::name_of(tensor.type))},
            {"bytes", tensor.bytes.count},
            {"gathered", tensor.form == layers::CopyForm::gathered},
            {"held_elsewhere", tensor.held_elsewhere}};
}

Json group_json(const layers::TensorGroup& group) {
    Json tensors = Json::array();
    for (const layers::GroupTensor& tensor : group.tensors) tensors.push_back(tensor_json(tensor));
    return {{"module", std::string(types::name_of(group.module))},
            {"copied_bytes", group.copied.count},
            {"freed_bytes", group.freed.count},
            {"tensors", tensors}};
}

Json script_json(const layers::LayerScript& script) {
    Json groups = Json::array();
    for (const layers::TensorGroup& group : layers::tensor_groups(script)) groups.push_back(group_json(group));
    return {{"layer", script.name}, {"saved_bytes", layers::saved_bytes(script).count}, {"groups", groups}};
}

}  // namespace

Json tensor_groups_json(const search::Job& job) {
    Json kinds = Json::array();
    std::set<std::string> seen;
    for (const layers::StageLayers& stage : job.stages) {
        for (const layers::LayerScript& script : stage.scripts) {
            if (layers::tensor_groups(script).empty() || !seen.insert(script.name).second) continue;
            kinds.push_back(script_json(script));
        }
    }
    return kinds;
}

}  // namespace stowage::reports
