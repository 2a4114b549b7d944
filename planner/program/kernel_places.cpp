#include "planner/program/kernel_places.hpp"

#include <algorithm>
#include <map>

namespace stowage::program {
namespace {

class Places {
public:
    /// `as_recompute`: what the script calls forward runs again.
    void add(const std::vector<layers::Step>& steps, const layers::LayerScript& script, bool as_recompute) {
        for (const layers::Step& step : steps) {
            if (step.kind != layers::StepKind::kernel) continue;
            KernelName name{step.part, step.phase, script.kernels[step.detail].name, 0};
            if (as_recompute && name.phase == layers::Phase::forward) name.phase = layers::Phase::recompute;
            const std::uint32_t occurrence = passed_[name]++;
            name.occurrence = occurrence;
            places_.push_back({std::move(name), step.detail});
        }
    }
    std::vector<KernelPlace> take() { return std::move(places_); }

private:
    std::map<KernelName, std::uint32_t> passed_;
    std::vector<KernelPlace> places_;
};

}  // namespace

std::vector<KernelPlace> kernel_places(const layers::LayerScript& script, bool again) {
    Places places;
    places.add(script.forward, script, false);
    if (again) places.add(script.forward, script, true);
    places.add(script.backward, script, false);
    return places.take();
}

bool runs_again(const layers::ChunkLayers& chunk, std::size_t frame) {
    return std::any_of(chunk.recomputed.begin(), chunk.recomputed.end(), [frame](const layers::RecomputedSpan& span) {
        return span.first <= frame && frame <= span.last;
    });
}

}  // namespace stowage::program
