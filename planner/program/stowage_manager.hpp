#pragma once

// The offload manager of policy `stowage`: any subset of the groups leaves, in every step alike.
//
// Nothing is learned in a first iteration and nothing is kept by rule. A group that was chosen is copied to the host at
// its commit. The main stream joins copies a fixed number of commits behind, so that few are under way and the memory
// that left is usable again at a place that the program knows. Reloads follow the order of the backwards: when the
// backward of a group is done, the group so many places on is reloaded, if it has left; where that one's forward is
// still to come, its reload is issued when its own chunk's backward begins. The main stream waits for a reload where
// the backward first reads one of its tensors, and never reads inline.
//
// Under graphs of layers a reload ends before the graph in which it was issued. There the first hook of a layer's
// backward issues all that is to be issued during that layer: what lies up to `reload_ahead` groups on, and the rest of
// that group's layer, the next layer at least.
//
// Worked example, one chunk, four layers of one group, all chosen, reload_ahead 2, join_after 1. Forward: commit 0;
// commit 1, join 0; commit 2, join 1; commit 3, join 2. Backward: the first hook joins 3; read 3 finds nothing reloaded
// and reloads 3 and 2, then waits for 3; done 3 reloads 1; read 2 waits for 2; done 2 reloads 0; and so on.
//
// Tested by: tests/planner/program/stowage_manager_test.cpp.

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "planner/program/offload_manager.hpp"
#include "scenarios/types/offload_choice.hpp"

namespace stowage::program {

/// The groups of a virtual stage: what all its chunks have in common.
struct StageGroups {
    std::vector<bool> leaves;                   ///< by group
    std::vector<std::uint32_t> positions;       ///< by group: its layer's place in the chunk
    std::vector<std::uint32_t> backward_order;  ///< the groups that have backward hooks, as their reads come
};

class StowageManager final : public OffloadManager {
public:
    /// `chunks`: by number of the chunk. `backward_order`: the numbers of the chunks as their backwards run.
    /// `reloads_by_layer`: as under graphs of layers.
    StowageManager(std::vector<std::shared_ptr<const StageGroups>> chunks,
                   const std::vector<std::uint32_t>& backward_order, const types::FreeOffload& choice,
                   bool reloads_by_layer = false);

    void begin_record() override { begin_steady(); }
    void begin_steady() override;
    void begin_forward(std::uint32_t) override {}
    void start(std::uint32_t, std::uint32_t) override {}
    bool commit(std::uint32_t chunk, std::uint32_t group) override;
    [[nodiscard]] std::optional<GroupRef> joined() const override { return joined_; }
    [[nodiscard]] bool unmanaged(std::uint32_t, std::uint32_t) const override { return false; }
    BackwardOrders backward_hook(layers::StepKind kind, std::uint32_t chunk, std::uint32_t group) override;
    [[nodiscard]] bool chunk_mismatch() const override { return false; }
    /// Megatron prints no table for it.
    [[nodiscard]] types::Bytes table_bytes(types::Module) const override { return {}; }

private:
    enum class Place : std::uint8_t { undecided, device, host, reloading };
    struct Group {
        Place place = Place::undecided;
        std::uint32_t number = kNotOrdered;  ///< among all groups in the order of the backwards
        GroupRef issued_by;                  ///< whose hook issued the reload
    };
    struct Chunk {
        std::shared_ptr<const StageGroups> stage;
        std::vector<Group> groups;
        bool backward_begun = false;
    };
    struct Copy {
        std::int64_t commit = 0;
        GroupRef group;
    };
    static constexpr std::uint32_t kNotOrdered = UINT32_MAX;

    void issue_for_layer(GroupRef by, std::vector<GroupRef>& reloads);
    [[nodiscard]] std::int64_t end_of_layer(std::int64_t number) const;
    void issue(std::int64_t up_to, GroupRef by, std::vector<GroupRef>& reloads);
    [[nodiscard]] std::uint32_t layer_of(GroupRef ref) const { return chunks_[ref.chunk].stage->positions[ref.group]; }

    std::vector<Chunk> chunks_;
    std::vector<GroupRef> sequence_;  ///< all groups in the order of the backwards
    std::int64_t reload_ahead_;
    std::int64_t join_after_;
    bool reloads_by_layer_;
    std::optional<std::pair<std::uint32_t, std::uint32_t>> in_layer_;  ///< chunk and position of the last hook
    std::deque<Copy> under_way_;                                       ///< copies that the main stream has not joined
    std::optional<GroupRef> joined_;
    std::int64_t commits_ = 0;
    std::size_t next_reload_ = 0;  ///< in sequence_
};

}  // namespace stowage::program
