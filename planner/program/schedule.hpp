#pragma once

// Pipeline schedules: what one rank computes, sends and receives, in the order its host issues it.
//
// A chunk is one microbatch on one virtual stage of the rank. Forward and backward of a chunk take their input from the
// rank before or after this one, and the pipeline is a ring when ranks have several virtual stages: the last rank hands
// chunk v's output to the first rank's chunk v + 1.
//
// Worked example, 2 ranks, 2 virtual stages (A, B), 4 microbatches in groups of 2; forwards of either rank:
// A0 A1 B0 B1 A2 A3 B2 B3, backwards: B0 B1 A0 A1 B2 B3 A2 A3. Rank 0 runs 2 + 2 = 4 forwards before its first
// backward, rank 1 two.
//
// Source: Megatron-LM main of August 2026, core/pipeline_parallel/schedules.py, re-described.
// Tested by: tests/planner/program/schedule_test.cpp.

#include <cstdint>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "planner/program/transfer.hpp"

namespace stowage::program {

struct Chunk {
    std::int32_t microbatch = 0;
    std::int32_t virtual_stage = 0;
    friend auto operator<=>(const Chunk&, const Chunk&) = default;
};

/// One tensor to or from a neighbour: a chunk's output or input, or the gradient of either. The chunk is this rank's.
struct Transfer {
    TransferKind kind{};
    Chunk chunk;
    friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// One entry of a schedule.
struct ScheduleStep {
    enum class Kind : std::uint8_t {
        forward,
        backward,
        paired,    ///< the forward of `chunk` and the backward of `other`, layer by layer beside each other
        exchange,  ///< all transfers as one grouped call that is waited for, with a device synchronisation
        post,      ///< the transfers are issued and run beside what follows
        await,     ///< the main stream waits for transfers posted before; these are they
    };
    Kind kind{};
    Chunk chunk;                      ///< forward, backward, paired
    std::vector<Transfer> transfers;  ///< exchange, post, await
    Chunk other;                      ///< paired: the chunk that runs backward
    friend bool operator==(const ScheduleStep&, const ScheduleStep&) = default;
};

/// What a schedule depends on.
struct PipelineShape {
    std::int64_t rank = 0;
    std::int64_t ranks = 1;
    std::int64_t virtual_stages = 1;
    std::int64_t microbatches = 1;
    std::int64_t group = 1;            ///< microbatches that pass one virtual stage before the next one begins
    bool overlapped_transfers = true;  ///< with several virtual stages: posted, not exchanged
    bool paired = false;               ///< forwards run beside backwards, so the warm-up has one chunk more
};
PipelineShape shape_of(const layers::StageLayers& stage, std::int64_t microbatches);

/// Forwards that the rank runs before its first backward: min(ranks - rank - 1, microbatches) with one virtual stage,
/// min(2 (ranks - rank - 1) + (virtual stages - 1) group, all) with several.
std::int64_t warmup_chunks(const PipelineShape& shape);

/// The chunks in the order of their forwards; backwards run in the order of `backward_chunks`.
std::vector<Chunk> forward_chunks(const PipelineShape& shape);
std::vector<Chunk> backward_chunks(const PipelineShape& shape);

/// Non-interleaved 1F1B with one virtual stage (with one rank forward and backward alternate), interleaved 1F1B with
/// several. Transfers that a rank's place does not have are left out. Cost: linear in the chunks.
std::vector<ScheduleStep> pipeline_schedule(const PipelineShape& shape);

}  // namespace stowage::program
