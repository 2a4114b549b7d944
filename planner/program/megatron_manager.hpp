#pragma once

// Megatron-LM's fine-grained offload manager, as a state machine without tensors.
//
// The manager watches hooks: `start` and `commit` of a module in the forward, their mirror images in the backward. In
// the first iteration it only learns (every group is copied to the host and read back when needed); at the reset after
// it a policy is computed once: a static margin keeps the last group of each module of the chunk whose backward comes
// first, `delta` keeps more on later pipeline ranks, and `fraction` drops the tail of every chunk. From then on each
// forward asks "offload now?", where the last-group rule also keeps the last group of a module whose chunk is next in
// backward, and each finished group of a backward prefetches one offloaded group.
//
// Worked example: one stage, 4 microbatches, 4 layers, two modules. Record: 32 copies, all read back inline. Steady:
// chunk 0 keeps two groups by the margin, chunks 1-3 by the last-group rule: 4 x (8 - 2) = 24 copies.
//
// Under graphs the same machine is asked by the capture (only groups inside graphs, the cursor walks the captured
// chunks) and by the replays (only groups outside; `start` passes over the others); a delayed commit is one that is
// asked later. The orders of chunks are given from outside. Source: Megatron-LM main of August 2026,
// core/pipeline_parallel/fine_grained_activation_offload.py, re-described; the chunk-finished test of that version,
// which mistakes a chunk whose groups so far all stayed on the device for a finished one, is kept, and what it leads to
// is reported as `chunk_mismatch`. Tested by: tests/planner/program/megatron_manager_test.cpp.

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "planner/program/offload_manager.hpp"
#include "scenarios/types/bytes.hpp"
#include "scenarios/types/offload_choice.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::program {

class MegatronManager final : public OffloadManager {
public:
    /// `forward_chunks`: the groups of each chunk, in forward order. `backward_order`: chunk numbers in backward order.
    MegatronManager(std::vector<std::shared_ptr<const ChunkGroups>> forward_chunks,
                    std::vector<std::uint32_t> backward_order, std::int64_t pipeline_rank, types::OffloadChoice choice,
                    types::RuleSet rules);

    /// The first iteration begins.
    void begin_record() override;
    /// The reset after an iteration: policy after the first one, cursors back to the start.
    void begin_steady() override;

    void begin_forward(std::uint32_t chunk) override;
    void start(std::uint32_t chunk, std::uint32_t group) override;
    /// Result: whether the group's tensors are copied to the host now.
    bool commit(std::uint32_t chunk, std::uint32_t group) override;
    /// The group whose copy the main stream waits for because of the last commit: with a cap, the oldest of its module
    /// and chunk that is one too many.
    [[nodiscard]] std::optional<GroupRef> joined() const override { return joined_; }
    /// Result: whether the forward of this group ran without the manager (it has no backward hooks then).
    [[nodiscard]] bool unmanaged(std::uint32_t chunk, std::uint32_t group) const override;
    BackwardOrders backward_hook(layers::StepKind kind, std::uint32_t chunk, std::uint32_t group) override;

    /// Result: the group whose reload the main stream waits for. Megatron looks for the oldest reload of the same
    /// module in the chunk, so a group that never left waits for another layer's when reloads run ahead (fraction below
    /// 1).
    std::optional<GroupRef> commit_backward(std::uint32_t chunk, std::uint32_t group);
    /// A saved tensor of the group is needed. Result: whether it is still on the host and is read inline on the main
    /// stream.
    bool read(std::uint32_t chunk, std::uint32_t group);
    /// Result: the group that is prefetched now.
    std::optional<GroupRef> start_backward(std::uint32_t chunk);
    /// Whether the prefetch of this group moved its tensors; they may have been read inline before.
    [[nodiscard]] bool prefetched(GroupRef ref) const { return group(ref).place == Place::reloaded; }

    /// Whether Megatron would have stopped with its "Chunk mismatch" assertion (rule H3).
    [[nodiscard]] bool chunk_mismatch() const override { return chunk_mismatch_; }
    /// The offload flag of a group after the policy.
    [[nodiscard]] bool flag(GroupRef ref) const { return group(ref).offload; }
    /// The bytes of Megatron's summary table: flagged groups of the chunks forwarded up to the first backward.
    [[nodiscard]] types::Bytes table_bytes(types::Module module) const override;

private:
    enum class Place : std::uint8_t { device, host, reloaded };
    struct Group {
        bool offload = true;
        bool unmanaged = false;
        Place place = Place::device;
    };
    struct Chunk {
        std::shared_ptr<const ChunkGroups> sites;
        std::vector<Group> groups;
        std::uint32_t started = 0;  ///< 1-based count, as Megatron's
        std::vector<std::uint32_t> pending;
        std::vector<std::uint32_t> reload;
        std::vector<std::uint32_t> loading;
        std::array<std::deque<std::uint32_t>, types::kModuleCount> under_way;  ///< copies that nobody has joined
    };

    [[nodiscard]] const Group& group(GroupRef ref) const { return chunks_[ref.chunk].groups[ref.group]; }
    [[nodiscard]] bool finished(const Chunk& chunk, types::Module module) const;
    [[nodiscard]] bool owns(std::uint32_t chunk, types::Module module, std::uint32_t from = 0) const;
    [[nodiscard]] bool offload_now(std::uint32_t chunk, std::uint32_t group) const;
    void advance_forward(types::Module module);
    void reset();
    void apply_policy();
    void apply_margin();
    void apply_delta();
    void apply_fraction();
    std::optional<GroupRef> reload_top(std::uint32_t chunk);

    std::vector<Chunk> chunks_;
    std::vector<std::uint32_t> backward_order_;
    std::int64_t pipeline_rank_;
    types::OffloadChoice choice_;
    bool keeps_undecided_pending_;
    bool recording_ = true;
    bool policy_applied_ = false;
    bool chunk_mismatch_ = false;
    std::optional<GroupRef> joined_;
    std::optional<std::uint32_t> forward_chunk_;
    std::optional<std::uint32_t> backward_chunk_;
    std::size_t forward_cursor_ = 0;
    std::size_t backward_cursor_ = 0;
};

}  // namespace stowage::program
