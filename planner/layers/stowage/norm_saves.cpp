#include "planner/layers/stowage/norm_saves.hpp"

namespace stowage::layers {

void NormSaves::forward(Slot input, std::optional<Module> group) {
    ScriptBuilder& script = writer_.script;
    writer_.run_norm(norm_, reads(input));
    input_ = script.save(input, group);
    if (!again_) {
        rstd_ = script.save(norm_.rstd);
        if (norm_.mean) mean_ = script.save(*norm_.mean);
    }
    script.drop(norm_.rstd);
    if (norm_.mean) script.drop(*norm_.mean);
}

void NormSaves::save_output(std::optional<Module> group) {
    if (!again_) output_ = writer_.script.save(norm_.output, group);
}

void NormSaves::remake() {
    if (!again_) return;
    ScriptBuilder& script = writer_.script;
    script.phase(Phase::recompute);
    script.read(input_);
    writer_.run_norm(norm_, script.operand(input_));
    script.phase(Phase::backward);
}

CallOperand NormSaves::output() {
    if (again_) return reads(norm_.output);
    writer_.script.read(*output_);
    return writer_.script.operand(*output_);
}

void NormSaves::forget_output() {
    if (again_)
        writer_.script.drop(norm_.output);
    else
        writer_.script.forget(*output_);
}

CallOperand NormSaves::statistic(const std::optional<SavedIndex>& saved, Slot made) const {
    return saved ? writer_.script.operand(*saved) : reads(made);
}

void NormSaves::backward(const NormGradients& gradients) {
    ScriptBuilder& script = writer_.script;
    if (!again_) {
        script.read(input_);
        script.read(*rstd_);
        if (mean_) script.read(*mean_);
    }
    std::optional<CallOperand> mean;
    if (norm_.mean) mean = statistic(mean_, *norm_.mean);
    writer_.norm_backward(norm_, script.operand(input_), statistic(rstd_, norm_.rstd), mean, gradients);
    script.forget(input_);
    if (again_) {
        script.drop(norm_.rstd);
        if (norm_.mean) script.drop(*norm_.mean);
        return;
    }
    script.forget(*rstd_);
    if (mean_) script.forget(*mean_);
}

}  // namespace stowage::layers
