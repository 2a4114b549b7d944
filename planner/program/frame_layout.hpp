#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/module.hpp"
#include "scenarios/types/offload_choice.hpp"

namespace stowage::program {

using types::Bytes;

/// Where the tensors of a script's frame lie, and which offload groups it has under one choice of modules.
class FrameLayout {
public:
    FrameLayout(const layers::LayerScript& script, const types::OffloadChoice& choice);

    /// Slots: the script's tensors, then a reload buffer and a pinned buffer for each saved entry.
    [[nodiscard]] std::uint32_t slots() const { return tensors_ + 2 * saved_; }
    [[nodiscard]] std::uint32_t events() const { return exchange_event(0) + (exchanges_ ? 2 : 0); }
    /// Of the two token exchanges of a layer with experts, in either direction.
    [[nodiscard]] std::uint32_t exchange_event(std::uint32_t number) const {
        return 2 * static_cast<std::uint32_t>(groups_.size()) + number;
    }
    [[nodiscard]] std::uint32_t reload_slot(layers::SavedIndex saved) const;
    [[nodiscard]] std::uint32_t pinned_slot(layers::SavedIndex saved) const;
    [[nodiscard]] std::uint32_t offload_event(types::Module module) const;
    [[nodiscard]] std::uint32_t reload_event(types::Module module) const;

    /// The active groups in start order.
    [[nodiscard]] const std::vector<types::Module>& groups() const { return groups_; }
    [[nodiscard]] bool has_group(types::Module module) const {
        return group_index_[static_cast<std::size_t>(module)] >= 0;
    }
    /// Number of the group among the active ones.
    [[nodiscard]] std::uint32_t group_index(types::Module module) const;
    /// The saved entries of a group that pass the size filter.
    [[nodiscard]] const std::vector<layers::SavedIndex>& movable(types::Module module) const;
    [[nodiscard]] Bytes group_bytes(types::Module module) const;
    /// Whether a commit that lists `slot` empties it: what is listed passes the same size filter as what is saved. The
    /// listed tensor is the one that the group saved, else the storage itself. `script` is the one of the constructor.
    [[nodiscard]] bool releasable(const layers::LayerScript& script, layers::Slot slot, types::Module module) const;
    /// Whether the entry leaves the device when its group is offloaded.
    [[nodiscard]] bool is_movable(layers::SavedIndex saved) const { return movable_flag_[layers::index(saved)]; }

private:
    std::uint32_t tensors_ = 0;
    std::uint32_t saved_ = 0;
    std::int64_t min_elements_;
    bool exchanges_ = false;  ///< the layer sends tokens to experts
    std::vector<types::Module> groups_;
    std::array<std::int8_t, types::kModuleCount> group_index_{};
    std::array<std::vector<layers::SavedIndex>, types::kModuleCount> movable_;
    std::array<Bytes, types::kModuleCount> bytes_{};
    std::vector<bool> movable_flag_;
};

}  // namespace stowage::program
