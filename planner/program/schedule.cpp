#include "planner/program/schedule.hpp"

#include <algorithm>
#include <utility>

#include "planner/program/interleaved_schedule.hpp"

namespace stowage::program {
namespace {

using Kind = ScheduleStep::Kind;

/// Collects the steps of one rank with one virtual stage and leaves out the transfers that its place does not have.
class RankSchedule {
public:
    RankSchedule(bool first, bool last) : first_(first), last_(last) {}

    void compute(Kind kind, std::int64_t microbatch) { steps_.push_back({kind, chunk(microbatch), {}, {}}); }
    void receive_forward(std::int64_t microbatch) { previous({{TransferKind::receive_forward, chunk(microbatch)}}); }
    void send_backward(std::int64_t microbatch) { previous({{TransferKind::send_backward, chunk(microbatch)}}); }
    void send_backward_receive_forward(std::int64_t sent, std::int64_t received) {
        previous({{TransferKind::send_backward, chunk(sent)}, {TransferKind::receive_forward, chunk(received)}});
    }
    void send_forward(std::int64_t microbatch) { next({{TransferKind::send_forward, chunk(microbatch)}}); }
    void receive_backward(std::int64_t microbatch) { next({{TransferKind::receive_backward, chunk(microbatch)}}); }
    void send_forward_receive_backward(std::int64_t sent, std::int64_t received) {
        next({{TransferKind::send_forward, chunk(sent)}, {TransferKind::receive_backward, chunk(received)}});
    }
    std::vector<ScheduleStep> take() { return std::move(steps_); }

private:
    static Chunk chunk(std::int64_t microbatch) { return {static_cast<std::int32_t>(microbatch), 0}; }
    void previous(std::vector<Transfer> transfers) {
        if (!first_) steps_.push_back({Kind::exchange, {}, std::move(transfers), {}});
    }
    void next(std::vector<Transfer> transfers) {
        if (!last_) steps_.push_back({Kind::exchange, {}, std::move(transfers), {}});
    }

    bool first_;
    bool last_;
    std::vector<ScheduleStep> steps_;
};

void warm_up(RankSchedule& schedule, std::int64_t warmup) {
    for (std::int64_t i = 0; i < warmup; ++i) {
        schedule.receive_forward(i);
        schedule.compute(Kind::forward, i);
        schedule.send_forward(i);
    }
}

void steady(RankSchedule& schedule, std::int64_t warmup, std::int64_t microbatches) {
    const std::int64_t remaining = microbatches - warmup;
    if (remaining > 0) schedule.receive_forward(warmup);
    for (std::int64_t i = 0; i < remaining; ++i) {
        schedule.compute(Kind::forward, warmup + i);
        schedule.send_forward_receive_backward(warmup + i, i);
        schedule.compute(Kind::backward, i);
        if (i + 1 < remaining)
            schedule.send_backward_receive_forward(i, warmup + i + 1);
        else
            schedule.send_backward(i);
    }
}

void cool_down(RankSchedule& schedule, std::int64_t warmup, std::int64_t microbatches) {
    for (std::int64_t i = microbatches - warmup; i < microbatches; ++i) {
        schedule.receive_backward(i);
        schedule.compute(Kind::backward, i);
        schedule.send_backward(i);
    }
}

/// One rank whose every forward but the first runs beside the backward before it.
std::vector<ScheduleStep> paired_on_one_rank(std::int64_t microbatches) {
    const auto chunk = [](std::int64_t microbatch) { return Chunk{static_cast<std::int32_t>(microbatch), 0}; };
    std::vector<ScheduleStep> steps{{Kind::forward, chunk(0), {}, {}}};
    for (std::int64_t i = 1; i < microbatches; ++i) steps.push_back({Kind::paired, chunk(i), {}, chunk(i - 1)});
    steps.push_back({Kind::backward, chunk(microbatches - 1), {}, {}});
    return steps;
}

std::vector<ScheduleStep> one_forward_one_backward(const PipelineShape& shape) {
    if (shape.paired && shape.ranks == 1) return paired_on_one_rank(shape.microbatches);
    RankSchedule schedule(shape.rank == 0, shape.rank == shape.ranks - 1);
    const std::int64_t warmup = warmup_chunks(shape);
    warm_up(schedule, warmup);
    steady(schedule, warmup, shape.microbatches);
    cool_down(schedule, warmup, shape.microbatches);
    return schedule.take();
}

}  // namespace

PipelineShape shape_of(const layers::StageLayers& stage, std::int64_t microbatches) {
    return {.rank = stage.pipeline_rank,
            .ranks = stage.pipeline_size,
            .virtual_stages = static_cast<std::int64_t>(stage.chunks.size()),
            .microbatches = microbatches,
            .group = stage.microbatch_group,
            .overlapped_transfers = stage.overlapped_transfers,
            .paired = stage.paired_chunks};
}

std::int64_t warmup_chunks(const PipelineShape& shape) {
    const std::int64_t after = shape.ranks - shape.rank - 1;
    if (shape.virtual_stages == 1) return std::min(after + (shape.paired ? 1 : 0), shape.microbatches);
    const std::int64_t warmup = 2 * after + (shape.virtual_stages - 1) * shape.group + (shape.paired ? 1 : 0);
    return std::min(warmup, shape.microbatches * shape.virtual_stages);
}

std::vector<Chunk> forward_chunks(const PipelineShape& shape) {
    std::vector<Chunk> chunks;
    const auto microbatches = static_cast<std::int32_t>(shape.microbatches);
    const auto group = static_cast<std::int32_t>(std::min(shape.group, shape.microbatches));
    for (std::int32_t first = 0; first < microbatches; first += group)
        for (std::int32_t stage = 0; stage < shape.virtual_stages; ++stage)
            for (std::int32_t i = first; i < std::min(first + group, microbatches); ++i) chunks.push_back({i, stage});
    return chunks;
}

std::vector<Chunk> backward_chunks(const PipelineShape& shape) {
    std::vector<Chunk> chunks = forward_chunks(shape);
    for (Chunk& chunk : chunks)
        chunk.virtual_stage = static_cast<std::int32_t>(shape.virtual_stages - 1) - chunk.virtual_stage;
    return chunks;
}

std::vector<ScheduleStep> pipeline_schedule(const PipelineShape& shape) {
    return shape.virtual_stages == 1 ? one_forward_one_backward(shape) : interleaved_schedule(shape);
}

}  // namespace stowage::program
