#include "planner/program/schedule.hpp"

#include <algorithm>

namespace stowage::program {
namespace {

using Kind = ScheduleStep::Kind;

/// Collects the steps of one rank and leaves out the transfers that its place in the pipeline does not have.
class RankSchedule {
public:
    RankSchedule(bool first, bool last) : first_(first), last_(last) {}

    void compute(Kind kind, std::int64_t microbatch) { steps_.push_back({kind, microbatch, -1}); }
    void with_previous(Kind kind, std::int64_t microbatch, std::int64_t received = -1) {
        if (!first_) steps_.push_back({kind, microbatch, received});
    }
    void with_next(Kind kind, std::int64_t microbatch, std::int64_t received = -1) {
        if (!last_) steps_.push_back({kind, microbatch, received});
    }
    std::vector<ScheduleStep> take() { return std::move(steps_); }

private:
    bool first_;
    bool last_;
    std::vector<ScheduleStep> steps_;
};

void warm_up(RankSchedule& schedule, std::int64_t warmup) {
    for (std::int64_t i = 0; i < warmup; ++i) {
        schedule.with_previous(Kind::receive_forward, i);
        schedule.compute(Kind::forward, i);
        schedule.with_next(Kind::send_forward, i);
    }
}

void steady(RankSchedule& schedule, std::int64_t warmup, std::int64_t microbatches) {
    const std::int64_t remaining = microbatches - warmup;
    if (remaining > 0) schedule.with_previous(Kind::receive_forward, warmup);
    for (std::int64_t i = 0; i < remaining; ++i) {
        schedule.compute(Kind::forward, warmup + i);
        schedule.with_next(Kind::send_forward_receive_backward, warmup + i, i);
        schedule.compute(Kind::backward, i);
        if (i + 1 < remaining)
            schedule.with_previous(Kind::send_backward_receive_forward, i, warmup + i + 1);
        else
            schedule.with_previous(Kind::send_backward, i);
    }
}

void cool_down(RankSchedule& schedule, std::int64_t warmup, std::int64_t microbatches) {
    for (std::int64_t i = microbatches - warmup; i < microbatches; ++i) {
        schedule.with_next(Kind::receive_backward, i);
        schedule.compute(Kind::backward, i);
        schedule.with_previous(Kind::send_backward, i);
    }
}

}  // namespace

std::int64_t warmup_microbatches(std::int64_t pipeline_rank, std::int64_t stages, std::int64_t microbatches) {
    return std::min(stages - pipeline_rank - 1, microbatches);
}

std::vector<ScheduleStep> one_forward_one_backward(std::int64_t pipeline_rank, std::int64_t stages,
                                                   std::int64_t microbatches) {
    RankSchedule schedule(pipeline_rank == 0, pipeline_rank == stages - 1);
    const std::int64_t warmup = warmup_microbatches(pipeline_rank, stages, microbatches);
    warm_up(schedule, warmup);
    steady(schedule, warmup, microbatches);
    cool_down(schedule, warmup, microbatches);
    return schedule.take();
}

}  // namespace stowage::program
