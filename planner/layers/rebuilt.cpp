#include "planner/layers/rebuilt.hpp"

#include <utility>

namespace stowage::layers {

Slot stand_in(Writer& writer, const std::string& name, Shape shape) {
    return writer.script.held(name, std::move(shape));
}

SeparateNorm separate_norm_forward(Writer& writer, const std::string& name, Part part, Slot input, Module group) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(part);
    SeparateNorm norm{name, part, {}, {}, writer.recomputes(types::RecomputeModule::layernorm), {}, {}, group};
    norm.output = writer.make(name + ".output", dim.hidden_shape());
    norm.saved_as = norm.output;
    if (norm.rebuilt) {
        norm.saved_as = stand_in(writer, name + ".output", dim.hidden_shape());
        norm.input = script.save(input, group);
    }
    const Saving before = norm.rebuilt ? script.saving(Saving::nothing) : script.saving(Saving::autograd);
    const NormStatistics statistics = run_norm(writer, name, dim.local_tokens, dim.hidden);
    norm.saved = save_norm(writer, name, dim.local_tokens, dim.hidden, input, statistics, group);
    script.saving(before);
    return norm;
}

void separate_norm_done(Writer& writer, const SeparateNorm& norm) { writer.script.drop(norm.output); }

void separate_norm_restore(Writer& writer, SeparateNorm& norm) {
    if (!norm.rebuilt) return;
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(norm.part);
    script.phase(Phase::recompute);
    script.read(norm.input);
    const Saving before = script.saving(Saving::rebuild);
    script.allocate(norm.output);
    const NormStatistics statistics = run_norm(writer, norm.name, dim.local_tokens, dim.hidden);
    norm.saved = save_norm(writer, norm.name, dim.local_tokens, dim.hidden, kInput, statistics, norm.group);
    script.saving(before);
    script.phase(Phase::backward);
}

void separate_norm_backward(Writer& writer, const SeparateNorm& norm) {
    writer.script.part(norm.part);
    norm_backward(writer, norm.saved);
    if (!norm.rebuilt) return;
    writer.script.drop(norm.output);
    writer.script.forget(norm.input);
}

}  // namespace stowage::layers
