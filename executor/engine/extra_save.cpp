#include "executor/engine/extra_save.hpp"

#include <algorithm>

#include "scenarios/types/error.hpp"

namespace stowage::executor {
namespace {

using layers::LayerScript;
using layers::Step;
using layers::StepKind;

std::vector<Step>::iterator find_commit(std::vector<Step>& steps, types::Module module) {
    return std::find_if(steps.begin(), steps.end(),
                        [module](const Step& step) { return step.kind == StepKind::commit && step.module == module; });
}

Step like(Step step, StepKind kind) {
    step.kind = kind;
    return step;
}

bool save_one_more(LayerScript& script, types::Module module) {
    const auto commit = find_commit(script.forward, module);
    const auto backward = find_commit(script.backward, module);
    if (commit == script.forward.end() || backward == script.backward.end()) return false;
    const auto slot = static_cast<layers::Slot>(script.tensors.size());
    const auto saved = static_cast<layers::SavedIndex>(script.saved.size());
    script.tensors.push_back({.name = "extra", .shape = {kExtraSave.count / 2}});
    script.saved.push_back({.name = "extra",
                            .tensor = slot,
                            .group = module,
                            .shape = {kExtraSave.count / 2},
                            .type = types::DataType::bf16,
                            .form = layers::CopyForm::contiguous});

    Step step = *commit;
    step.slot = slot;
    step.saved = saved;
    script.forward.insert(commit,
                          {like(step, StepKind::allocate), like(step, StepKind::save), like(step, StepKind::drop)});
    step = *backward;
    step.saved = saved;
    script.backward.insert(backward + 1, {like(step, StepKind::read), like(step, StepKind::forget)});
    return true;
}

}  // namespace

void save_one_more(layers::StageLayers& stage, types::Module module) {
    if (stage.graphs.impl != types::CudaGraphImpl::none)
        throw types::UnsupportedError("error: a module saves a tensor more in eager steps only, not under CUDA graphs");
    bool any = false;
    for (LayerScript& script : stage.scripts) any = save_one_more(script, module) || any;
    if (!any)
        throw types::UnsupportedError("error: no layer of this rank has the module " +
                                      std::string(types::name_of(module)) + " to save a tensor more in");
}

}  // namespace stowage::executor
