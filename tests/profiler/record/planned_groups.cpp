#include "tests/profiler/record/planned_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/layers/inventory.hpp"

namespace stowage::profiler::testing {
namespace {

using recording::Group;
using recording::Tensor;

void add_layer(const layers::LayerScript& script, const types::ModuleSet& modules, GroupPlace place,
               GroupTensors& groups) {
    for (const layers::TensorGroup& group : layers::tensor_groups(script)) {
        if (!modules.contains(group.module)) continue;
        std::get<0>(place) = std::string(types::name_of(group.module));
        for (const layers::GroupTensor& tensor : group.tensors) groups[place].push_back(tensor.bytes.count);
    }
}

GroupPlace place_of(const Group& group) { return {group.module, group.layer, group.microbatch, group.chunk}; }

}  // namespace

types::ModuleSet movable_modules() {
    using types::Module;
    return {Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
            Module::mlp_norm,  Module::expert_fc1, Module::moe_act};
}

GroupTensors planned_groups(const layers::StageLayers& stage, std::int64_t microbatches,
                            const types::ModuleSet& modules) {
    GroupTensors groups;
    for (std::size_t chunk = 0; chunk < stage.chunks.size(); ++chunk) {
        const layers::ChunkLayers& layers = stage.chunks[chunk];
        for (std::size_t frame = 0; frame < layers.order.size(); ++frame)
            for (std::int32_t microbatch = 0; microbatch < microbatches; ++microbatch)
                add_layer(stage.scripts[layers.order[frame]], modules,
                          {"", static_cast<std::int32_t>(layers.layer_numbers[frame]), microbatch,
                           static_cast<std::int32_t>(chunk)},
                          groups);
    }
    return groups;
}

GroupTensors moved_groups(const std::vector<Group>& groups) {
    GroupTensors moved;
    for (const Group& group : groups)
        for (const Tensor& tensor : group.tensors)
            if (tensor.offloaded) moved[place_of(group)].push_back(tensor.bytes.count);
    return moved;
}

GroupTensors kept_groups(const std::vector<Group>& groups) {
    GroupTensors kept;
    for (const Group& group : groups)
        for (const Tensor& tensor : group.tensors) kept[place_of(group)].push_back(tensor.bytes.count);
    return kept;
}

GroupTensors difference(const GroupTensors& more, GroupTensors less) {
    GroupTensors rest;
    for (const auto& [place, bytes] : more) {
        std::vector<std::int64_t> known = less[place];
        for (const std::int64_t one : bytes) {
            const auto found = std::find(known.begin(), known.end(), one);
            if (found == known.end())
                rest[place].push_back(one);
            else
                known.erase(found);
        }
        EXPECT_TRUE(known.empty()) << std::get<0>(place) << " of layer " << std::get<1>(place);
        less.erase(place);
    }
    EXPECT_TRUE(less.empty());
    return rest;
}

}  // namespace stowage::profiler::testing
