#include "tests/support/made_recording.hpp"

#include <algorithm>
#include <string>

namespace stowage::tests {
namespace {

using types::Nanoseconds;

class Writer {
public:
    Writer(recording::Recording& recording, const MadeRecording& made, const KernelTime& time)
        : recording_(recording), made_(made), time_(time) {}

    void step(const layers::StageLayers& stage, std::int64_t number) {
        recording_.steps.emplace_back();
        recording_.steps.back().stage = "steady";
        step_ = number;
        now_ = Nanoseconds{0};
        operation_ = 0;
        for (std::int64_t microbatch = 0; microbatch < made_.microbatches; ++microbatch) pass(stage, microbatch);
        kernels(stage.optimizer, -1, -1, false);
        recording_.steps.back().duration = now_ - made_.gap;
    }

private:
    void pass(const layers::StageLayers& stage, std::int64_t microbatch) {
        for (const layers::ChunkLayers& chunk : stage.chunks)
            for (std::size_t frame = 0; frame < chunk.order.size(); ++frame)
                kernels(stage.scripts[chunk.order[frame]], chunk.layer_numbers[frame], microbatch,
                        program::runs_again(chunk, frame));
    }

    /// Forward and backward in one go: a recording does not care.
    void kernels(const layers::LayerScript& script, std::int64_t layer, std::int64_t microbatch, bool again) {
        for (const program::KernelPlace& place : program::kernel_places(script, again)) {
            const Nanoseconds time = time_(script.kernels[place.kernel], place.name, layer, step_);
            recording::Event event;
            event.site =
                site({std::string(name_of(place.name.part)), std::string(name_of(place.name.phase)), place.name.work});
            event.operation = operation_++;
            event.layer = static_cast<std::int32_t>(layer);
            event.microbatch = static_cast<std::int32_t>(microbatch);
            event.kind = recording::EventKind::kernel;
            event.stream = 7;
            event.start = now_;
            event.duration = time - made_.gap;
            recording_.steps.back().events.push_back(event);
            now_ += time;
        }
    }

    std::uint32_t site(const recording::Site& wanted) {
        auto& sites = recording_.sites;
        const auto found = std::find(sites.begin(), sites.end(), wanted);
        if (found != sites.end()) return static_cast<std::uint32_t>(found - sites.begin());
        sites.push_back(wanted);
        return static_cast<std::uint32_t>(sites.size() - 1);
    }

    recording::Recording& recording_;
    const MadeRecording& made_;
    const KernelTime& time_;
    std::int64_t step_ = 0;
    Nanoseconds now_{0};
    std::uint32_t operation_ = 0;
};

}  // namespace

recording::Recording made_recording(const layers::StageLayers& stage, const MadeRecording& made,
                                    const KernelTime& time) {
    recording::Recording recording;
    recording.source = recording.implementation = "stowage";
    recording.pipeline_rank = stage.pipeline_rank;
    Writer writer(recording, made, time);
    for (std::int64_t step = 0; step < made.steps; ++step) writer.step(stage, step);
    return recording;
}

recording::Recording recording_of_estimates(const layers::StageLayers& stage, const MadeRecording& made,
                                            const program::Durations& durations) {
    return made_recording(
        stage, made, [&](const layers::Kernel& kernel, const program::KernelName& name, std::int64_t, std::int64_t) {
            return durations.estimate(kernel, name.phase);
        });
}

}  // namespace stowage::tests
