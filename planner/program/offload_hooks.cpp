#include "planner/program/offload_hooks.hpp"

namespace stowage::program {

using layers::Step;
using layers::StepKind;

std::vector<FrameLayout> make_layouts(const layers::StageLayers& stage, const types::OffloadChoice& choice) {
    std::vector<FrameLayout> layouts;
    for (std::size_t i = 0; i < stage.scripts.size(); ++i) {
        types::OffloadChoice own = choice;
        if (i < stage.downgraded.size())
            for (const types::Module module : stage.downgraded[i].list()) own.modules.erase(module);
        layouts.emplace_back(stage.scripts[i], own);
    }
    return layouts;
}

std::vector<Hook> hook_steps(const layers::LayerScript& script, const FrameLayout& layout, bool forward) {
    std::vector<Hook> hooks;
    const std::vector<Step>& steps = forward ? script.forward : script.backward;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const Step& step = steps[i];
        const bool hook = step.kind == StepKind::start || step.kind == StepKind::commit;
        if (hook && layout.has_group(step.module)) hooks.push_back({step.kind, step.module, i});
        if (forward || step.kind != StepKind::read) continue;
        if (!layout.is_movable(step.saved)) continue;  // it never left the device
        hooks.push_back({step.kind, *script.saved[layers::index(step.saved)].group, i});
    }
    return hooks;
}

std::vector<std::uint32_t> manager_backward_order(const std::vector<Chunk>& forwards, std::int64_t virtual_stages) {
    std::vector<std::uint32_t> order;
    std::vector<std::vector<std::uint32_t>> waiting(static_cast<std::size_t>(virtual_stages));
    const auto flush = [&] {
        if (waiting.front().size() != waiting.back().size()) return;
        for (std::size_t stage = waiting.size() - 1; stage-- > 0;)
            order.insert(order.end(), waiting[stage].begin(), waiting[stage].end());
        for (auto& chunks : waiting) chunks.clear();
    };
    for (std::uint32_t number = 0; number < forwards.size(); ++number) {
        const auto stage = static_cast<std::size_t>(forwards[number].virtual_stage);
        const bool last = stage + 1 == waiting.size();
        if (last) order.push_back(number);
        waiting[stage].push_back(number);
        if (last) flush();
    }
    return order;
}

}  // namespace stowage::program
