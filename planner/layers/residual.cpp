#include "planner/layers/residual.hpp"

namespace stowage::layers {

ResidualSum residual_forward(Writer& writer, const std::string& name, bool bias, Slot output) {
    ScriptBuilder& script = writer.script;
    const std::int64_t elements = writer.dim.hidden_elements();
    const bool drops = writer.model.hidden_dropout > 0;
    script.part(Part::residual);
    script.allocate(output);
    ResidualSum sum{name, bias, std::nullopt};
    std::int64_t traffic = 3 * 2 * elements;
    if (drops) {
        const Slot mask = writer.make(name + ".dropout_mask", writer.dim.hidden_shape(), DataType::boolean);
        sum.mask = script.save(mask);
        script.drop(mask);
        traffic += elements;
    }
    writer.memory_kernel(name + ".forward", traffic);
    return sum;
}

std::optional<Slot> residual_backward(Writer& writer, const ResidualSum& sum) {
    const std::int64_t elements = writer.dim.hidden_elements();
    writer.script.part(Part::residual);
    std::optional<Slot> branch;
    if (sum.mask) {
        branch = writer.make(sum.name + ".branch_gradient", writer.dim.hidden_shape());
        writer.script.read(*sum.mask);
        writer.memory_kernel(sum.name + ".backward", 5 * elements);
        writer.script.forget(*sum.mask);
    }
    if (sum.bias) {
        writer.memory_kernel(sum.name + ".bias_gradient", 2 * elements);
        writer.accumulate_small_gradient(sum.name + ".bias", {writer.dim.hidden});
    }
    return branch;
}

void join_gradients(Writer& writer, const std::string& name, Slot past_branch) {
    writer.script.part(Part::residual);
    writer.memory_kernel(name + ".join_gradients", 3 * 2 * writer.dim.hidden_elements());
    writer.script.drop(past_branch);
}

}  // namespace stowage::layers
