#include "planner/program/bucket_schedule.hpp"

#include <algorithm>

namespace stowage::program {

BucketSchedule::BucketSchedule(const layers::StageLayers& stage, const PipelineShape& shape)
    : stage_(stage), shape_(shape), backwards_(backward_chunks(shape)) {}

bool BucketSchedule::any_reductions() const {
    return std::any_of(stage_.chunks.begin(), stage_.chunks.end(),
                       [](const layers::ChunkLayers& chunk) { return !chunk.reductions.empty(); });
}

void BucketSchedule::add_gathers(std::int64_t virtual_stage, Launches& launches) const {
    if (virtual_stage >= shape_.virtual_stages) return;
    for (const layers::OverlappedBucket& bucket : stage_.chunks[static_cast<std::size_t>(virtual_stage)].gathers)
        launches.push_back(&bucket);
}

BucketSchedule::Launches BucketSchedule::at_step_begin() const {
    Launches launches;
    if (!interleaved()) return launches;
    add_gathers(0, launches);
    add_gathers(1, launches);
    return launches;
}

std::vector<BucketSchedule::Wait> BucketSchedule::before_chunk(Chunk chunk) const {
    if (!interleaved() || chunk.microbatch != 0 || layers_of(chunk).gathers.empty()) return {};
    Wait wait;
    add_gathers(chunk.virtual_stage + 2, wait.after);
    return {wait};
}

std::vector<BucketSchedule::Wait> BucketSchedule::before_layer(Chunk chunk, std::size_t position) const {
    std::vector<Wait> waits;
    if (interleaved() || chunk.microbatch != 0) return waits;
    const auto& gathers = layers_of(chunk).gathers;
    for (std::size_t i = 0; i < gathers.size(); ++i) {
        if (gathers[i].frame != position) continue;
        Wait& wait = waits.emplace_back();
        if (i == 0) wait.before.push_back(&gathers[i]);
        if (i + 1 < gathers.size()) wait.after.push_back(&gathers[i + 1]);
    }
    return waits;
}

BucketSchedule::Launches BucketSchedule::after_layer(Chunk chunk, std::size_t position) const {
    Launches launches;
    if (!by_bucket() || !is_last(chunk)) return launches;
    for (const layers::OverlappedBucket& bucket : layers_of(chunk).reductions)
        if (bucket.frame == position) launches.push_back(&bucket);
    return launches;
}

BucketSchedule::Launches BucketSchedule::after_backward() {
    Launches launches;
    const std::int64_t done = backwards_done_++;
    if (by_bucket()) return launches;
    const std::int64_t last = std::ssize(backwards_) - 1;
    const std::int64_t delay = interleaved() ? shape_.rank : 0;
    const std::int64_t end = done == last ? last : done - delay;
    for (std::int64_t i = std::max<std::int64_t>(done - delay, 0); i <= end; ++i) {
        const Chunk chunk = backwards_[static_cast<std::size_t>(i)];
        if (!is_last(chunk)) continue;
        for (const layers::OverlappedBucket& bucket : layers_of(chunk).reductions) launches.push_back(&bucket);
    }
    return launches;
}

}  // namespace stowage::program
