#include "planner/layers/attention_flash.hpp"

#include <optional>
#include <string>

#include "planner/layers/operand.hpp"

namespace stowage::layers {
namespace {

/// One sequence: [s, 1, ..] and [1, s, ..] are the same memory.
bool same_order(const Dimensions& dim) { return dim.micro_batch == 1; }

/// Query, key or value as the kernels take it; the copies go to `made`.
Slot in_kernel_order(Writer& writer, const std::string& name, std::optional<Slot> slot, std::int64_t heads,
                     std::int64_t size, std::vector<Slot>& made) {
    if (slot && same_order(writer.dim)) return *slot;
    made.push_back(copy_heads(writer, name + ".kernel_order", heads, size));
    return made.back();
}

Slot run_alone(Writer& writer, const ContextInputs& inputs, const AttentionCost& cost, std::vector<SavedIndex>& saved) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Slot output = writer.make("core_attn.output", head_shape(dim, dim.heads, dim.value_head_size));
    const Slot statistics =
        writer.make("core_attn.softmax_statistics", {dim.micro_batch, dim.heads, dim.sequence}, DataType::fp32);
    writer.attention_kernel("core_attn.forward", cost.forward, cost.forward_traffic, cost.work);
    for (const Slot slot : {inputs.query, inputs.key, inputs.value, output, statistics})
        saved.push_back(script.save(slot, Module::core_attn));
    script.drop(statistics);
    return output;
}

HeadGradients gradients_alone(Writer& writer, const AttentionCost& cost, const std::vector<SavedIndex>& saved) {
    const Dimensions& dim = writer.dim;
    HeadGradients gradients;
    gradients.query = writer.make("query.head_gradient", head_shape(dim, dim.heads, dim.head_size));
    gradients.key = writer.make("key.head_gradient", head_shape(dim, dim.groups, dim.head_size));
    gradients.value = writer.make("value.head_gradient", head_shape(dim, dim.groups, dim.value_head_size));
    for (const SavedIndex index : saved) writer.script.read(index);
    writer.attention_kernel("core_attn.backward", cost.backward, cost.backward_traffic, cost.work);
    return gradients;
}

/// The gradients of three views of one tensor, in that tensor.
HeadGradients joined(Writer& writer, const HeadGradients& heads) {
    const Dimensions& dim = writer.dim;
    HeadGradients gradients;
    gradients.packed = writer.make("qkv_linear.output_gradient", dim.full_shape(dim.qkv_width));
    writer.memory_kernel("qkv_linear.join_gradients", 4 * dim.tokens * dim.qkv_width);
    writer.script.drop(heads.query);
    if (heads.key) writer.script.drop(*heads.key);
    writer.script.drop(heads.value);
    return gradients;
}

}  // namespace

Slot flash_attention_forward(Writer& writer, const Heads& heads, const AttentionCost& cost,
                             std::vector<SavedIndex>& saved) {
    const Dimensions& dim = writer.dim;
    std::vector<Slot> copies;
    const ContextInputs inputs{
        in_kernel_order(writer, "query", heads.query, dim.heads, dim.head_size, copies),
        in_kernel_order(writer, "key", heads.key, dim.groups, dim.head_size, copies),
        in_kernel_order(writer, "value", heads.value, dim.groups, dim.value_head_size, copies),
    };
    const Slot output = dim.context > 1 ? context_attention_forward(writer, inputs, cost, saved)
                                        : run_alone(writer, inputs, cost, saved);
    drop_all(writer, copies);
    if (same_order(dim)) return output;
    const Slot ordered = copy_heads(writer, "core_attn.output_in_order", dim.heads, dim.value_head_size);
    writer.script.drop(output);
    return ordered;
}

HeadGradients flash_attention_backward(Writer& writer, bool views, const AttentionCost& cost,
                                       const std::vector<SavedIndex>& saved) {
    const Dimensions& dim = writer.dim;
    std::optional<Slot> ordered;
    if (!same_order(dim))
        ordered = copy_heads(writer, "core_attn.output_gradient_kernel_order", dim.heads, dim.value_head_size);
    const HeadGradients gradients =
        dim.context > 1 ? context_attention_backward(writer, cost, saved) : gradients_alone(writer, cost, saved);
    if (ordered) writer.script.drop(*ordered);
    return views ? joined(writer, gradients) : gradients;
}

}  // namespace stowage::layers
