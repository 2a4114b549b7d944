#include "planner/program/frame_layout.hpp"

#include <algorithm>

#include "scenarios/types/check.hpp"

namespace stowage::program {
namespace {

constexpr std::size_t at(types::Module module) { return static_cast<std::size_t>(module); }

}  // namespace

FrameLayout::FrameLayout(const layers::LayerScript& script, const types::OffloadChoice& choice)
    : tensors_(static_cast<std::uint32_t>(script.tensors.size())),
      saved_(static_cast<std::uint32_t>(script.saved.size())),
      min_elements_(choice.min_offloaded_tensor_size),
      movable_flag_(script.saved.size(), false) {
    exchanges_ = std::any_of(script.collectives.begin(), script.collectives.end(), layers::is_token_exchange);
    group_index_.fill(-1);
    for (const layers::Step& step : script.forward) {
        if (step.kind != layers::StepKind::start || !choice.modules.contains(step.module)) continue;
        group_index_[at(step.module)] = static_cast<std::int8_t>(groups_.size());
        groups_.push_back(step.module);
    }
    for (std::size_t i = 0; i < script.saved.size(); ++i) {
        const layers::SavedTensor& saved = script.saved[i];
        if (!saved.group || !has_group(*saved.group)) continue;
        if (saved.elements() < choice.min_offloaded_tensor_size) continue;
        if (script.tensors[layers::index(saved.tensor)].parameter) continue;  // the hooks let it pass
        movable_flag_[i] = true;
        movable_[at(*saved.group)].push_back(static_cast<layers::SavedIndex>(i));
        bytes_[at(*saved.group)] += saved.bytes();
    }
}

std::uint32_t FrameLayout::reload_slot(layers::SavedIndex saved) const {
    return static_cast<std::uint32_t>(tensors_ + layers::index(saved));
}

std::uint32_t FrameLayout::pinned_slot(layers::SavedIndex saved) const {
    return static_cast<std::uint32_t>(tensors_ + saved_ + layers::index(saved));
}

std::uint32_t FrameLayout::group_index(types::Module module) const {
    STOWAGE_CHECK(has_group(module), "the layer has no such offload group");
    return static_cast<std::uint32_t>(group_index_[at(module)]);
}

std::uint32_t FrameLayout::offload_event(types::Module module) const {
    return static_cast<std::uint32_t>(2 * group_index(module));
}

std::uint32_t FrameLayout::reload_event(types::Module module) const {
    return static_cast<std::uint32_t>(2 * group_index(module) + 1);
}

const std::vector<layers::SavedIndex>& FrameLayout::movable(types::Module module) const { return movable_[at(module)]; }

bool FrameLayout::releasable(const layers::LayerScript& script, layers::Slot slot, types::Module module) const {
    bool saved_here = false;
    for (std::size_t i = 0; i < script.saved.size(); ++i) {
        if (script.saved[i].tensor != slot || script.saved[i].group != module) continue;
        saved_here = true;
        if (movable_flag_[i]) return true;
    }
    return !saved_here && script.tensors[layers::index(slot)].elements() >= min_elements_;
}

Bytes FrameLayout::group_bytes(types::Module module) const { return bytes_[at(module)]; }

}  // namespace stowage::program
