#include "planner/layers/attention_unfused.hpp"

#include <initializer_list>
#include <string>

#include "planner/layers/attention_backend.hpp"

namespace stowage::layers {
namespace {

bool drops(const Writer& writer) { return writer.model.attention_dropout > 0; }

std::int64_t matrices(const Dimensions& dim) { return dim.micro_batch * dim.heads; }

Shape score_shape(const Dimensions& dim) { return {dim.micro_batch, dim.heads, dim.sequence, dim.sequence}; }

std::int64_t score_elements(const Dimensions& dim) { return matrices(dim) * dim.sequence * dim.sequence; }

/// One product for each matrix of scores: [s, k] of heads by [k, s], or [s, s] by [s, k]. In 16 bits whatever the
/// linears have.
void multiply(Writer& writer, std::string name, std::int64_t width, std::int64_t result) {
    const Dimensions& dim = writer.dim;
    const std::int64_t rows = matrices(dim) * dim.sequence;
    const double flops = 2.0 * static_cast<double>(score_elements(dim)) * static_cast<double>(width);
    writer.script.kernel({.name = std::move(name),
                          .kind = types::KernelClass::gemm,
                          .flops = flops,
                          .traffic = Bytes{2 * (score_elements(dim) + 2 * rows * width)},
                          .measured = {},
                          .result = Bytes{2 * result},
                          .count = matrices(dim)});
}

/// Keys or values, once for each query head that shares them.
Slot repeat(Writer& writer, const char* name, std::int64_t size) {
    const Dimensions& dim = writer.dim;
    const Slot repeated = writer.make(std::string{name} + ".repeated", head_shape(dim, dim.heads, size));
    writer.memory_kernel(std::string{name} + ".repeat", 2 * dim.tokens * (dim.heads + dim.groups) * size);
    return repeated;
}

void save_input(Writer& writer, const char* name, std::optional<Slot> slot, const UnfusedInputs& inputs,
                std::int64_t size, std::vector<SavedIndex>& saved) {
    const Dimensions& dim = writer.dim;
    const Shape shape = head_shape(dim, dim.heads, size);
    saved.push_back(slot ? writer.script.save(*slot, Module::core_attn)
                         : writer.script.save_view(name, *inputs.packed, Module::core_attn, shape, CopyForm::gathered));
}

/// Megatron's own layers without the fused kernel: the scores are widened, and what the softmax made and saves is fp32.
Slot widened_softmax(Writer& writer, Slot scores, std::vector<SavedIndex>& saved) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Slot wide = writer.make("core_attn.scores_fp32", score_shape(dim), DataType::fp32);
    writer.memory_kernel("core_attn.widen_scores", 6 * score_elements(dim));
    const Slot softmax = writer.make("core_attn.probabilities_fp32", score_shape(dim), DataType::fp32);
    writer.memory_kernel("core_attn.softmax", 8 * score_elements(dim));
    script.drop(wide);
    saved.push_back(script.save(softmax, Module::core_attn));
    const Slot weights = writer.make("core_attn.probabilities", score_shape(dim));
    writer.memory_kernel("core_attn.round_probabilities", 6 * score_elements(dim));
    script.drop(softmax);
    script.drop(scores);
    return weights;
}

Slot fused_softmax(Writer& writer, Slot scores, std::vector<SavedIndex>& saved) {
    const Dimensions& dim = writer.dim;
    const Slot weights = writer.make("core_attn.probabilities", score_shape(dim));
    writer.memory_kernel("core_attn.softmax", 4 * score_elements(dim));
    writer.script.drop(scores);
    saved.push_back(writer.script.save(weights, Module::core_attn));
    return weights;
}

/// Softmax and dropout; what they save, and the second product's own reference. Returns nothing else: the last tensor
/// dies with the call.
void weigh(Writer& writer, std::vector<SavedIndex>& saved) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Slot scores = writer.make("core_attn.scores", score_shape(dim));
    multiply(writer, "core_attn.scores", dim.head_size, score_elements(dim));
    Slot weights = writer.model.masked_softmax_fusion ? fused_softmax(writer, scores, saved)
                                                      : widened_softmax(writer, scores, saved);
    if (drops(writer)) {
        const Slot kept = writer.make("core_attn.dropped", score_shape(dim));
        const Slot mask = writer.make("core_attn.dropout_mask", score_shape(dim), DataType::boolean);
        writer.memory_kernel("core_attn.dropout", 5 * score_elements(dim));
        saved.push_back(script.save(mask, Module::core_attn));
        script.drop(mask);
        script.drop(weights);
        weights = kept;
    }
    saved.push_back(script.save(weights, Module::core_attn));
    script.drop(weights);
}

/// Takes the next of the saved tensors, in the order of the forward from its end.
class FromTheEnd {
public:
    FromTheEnd(Writer& writer, const std::vector<SavedIndex>& saved) : writer_(writer), saved_(saved) {}
    SavedIndex read() {
        const SavedIndex index = saved_[saved_.size() - ++taken_];
        writer_.script.read(index);
        return index;
    }
    void forget(std::initializer_list<SavedIndex> indices) {
        for (const SavedIndex index : indices) writer_.script.forget(index);
    }

private:
    Writer& writer_;
    const std::vector<SavedIndex>& saved_;
    std::size_t taken_ = 0;
};

/// Of keys or values: summed over the heads that share one; drops what it is given.
Slot sum_shared(Writer& writer, const char* name, std::int64_t size, Slot gradient) {
    const Dimensions& dim = writer.dim;
    if (dim.heads == dim.groups) return gradient;
    const Slot sum = writer.make(std::string{name} + ".gradient", head_shape(dim, dim.groups, size));
    writer.memory_kernel(std::string{name} + ".sum_gradient", 2 * dim.tokens * (dim.heads + dim.groups) * size);
    writer.script.drop(gradient);
    return sum;
}

/// A gradient of the first product, scaled into a second tensor.
Slot scaled_gradient(Writer& writer, const char* name) {
    const Dimensions& dim = writer.dim;
    const Shape shape = head_shape(dim, dim.heads, dim.head_size);
    const std::int64_t elements = dim.tokens * dim.heads * dim.head_size;
    const Slot product = writer.make(std::string{name} + ".unscaled_gradient", shape);
    multiply(writer, std::string{"core_attn."} + name + "_gradient", dim.head_size, elements);
    const Slot gradient = writer.make(std::string{name} + ".head_gradient", shape);
    writer.memory_kernel(std::string{name} + ".scale_gradient", 4 * elements);
    writer.script.drop(product);
    return gradient;
}

HeadGradients joined(Writer& writer, const HeadGradients& heads) {
    const Dimensions& dim = writer.dim;
    HeadGradients gradients;
    gradients.packed = writer.make("qkv_linear.output_gradient", dim.full_shape(dim.qkv_width));
    writer.memory_kernel("qkv_linear.join_gradients", 4 * dim.tokens * dim.qkv_width);
    for (const Slot slot : {heads.query, *heads.key, heads.value}) writer.script.drop(slot);
    return gradients;
}

}  // namespace

bool attends_unfused(const types::Scenario& scenario) {
    return attention_backend(scenario) == AttentionBackend::unfused;
}

Slot unfused_attention_forward(Writer& writer, const UnfusedInputs& inputs, std::vector<SavedIndex>& saved) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const bool shared = dim.heads != dim.groups;
    const auto key = shared ? std::optional{repeat(writer, "key", dim.head_size)} : inputs.key;
    const auto value = shared ? std::optional{repeat(writer, "value", dim.value_head_size)} : inputs.value;
    save_input(writer, "query", inputs.query, inputs, dim.head_size, saved);
    save_input(writer, "key", key, inputs, dim.head_size, saved);
    weigh(writer, saved);
    save_input(writer, "value", value, inputs, dim.value_head_size, saved);
    const std::int64_t elements = dim.tokens * dim.heads * dim.value_head_size;
    const Slot context =
        writer.make("core_attn.context", {dim.micro_batch, dim.heads, dim.sequence, dim.value_head_size});
    multiply(writer, "core_attn.context", dim.value_head_size, elements);
    if (shared)
        for (const auto& slot : {key, value}) script.drop(*slot);
    const Slot output = writer.make("core_attn.output", head_shape(dim, dim.heads, dim.value_head_size));
    writer.memory_kernel("core_attn.output.copy", 4 * elements);
    script.drop(context);
    return output;
}

HeadGradients unfused_attention_backward(Writer& writer, bool views, const std::vector<SavedIndex>& saved) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    FromTheEnd inputs(writer, saved);
    const SavedIndex value = inputs.read();
    const SavedIndex weights = inputs.read();
    Slot gradient = writer.make("core_attn.probabilities_gradient", score_shape(dim));
    multiply(writer, "core_attn.probabilities_gradient", dim.value_head_size, score_elements(dim));
    HeadGradients heads;
    heads.value = writer.make("value.head_gradient", head_shape(dim, dim.heads, dim.value_head_size));
    multiply(writer, "core_attn.value_gradient", dim.value_head_size, dim.tokens * dim.heads * dim.value_head_size);
    inputs.forget({value, weights});
    if (drops(writer)) {
        const SavedIndex mask = inputs.read();
        const Slot kept = writer.make("core_attn.dropped_gradient", score_shape(dim));
        writer.memory_kernel("core_attn.dropout_backward", 5 * score_elements(dim));
        inputs.forget({mask});
        script.drop(gradient);
        gradient = kept;
    }
    const SavedIndex probabilities = inputs.read();
    writer.memory_kernel("core_attn.softmax_backward", 6 * score_elements(dim));
    inputs.forget({probabilities});
    const SavedIndex key = inputs.read();
    const SavedIndex query = inputs.read();
    heads.query = scaled_gradient(writer, "query");
    heads.key = scaled_gradient(writer, "key");
    inputs.forget({key, query});
    script.drop(gradient);
    heads.key = sum_shared(writer, "key", dim.head_size, *heads.key);
    heads.value = sum_shared(writer, "value", dim.value_head_size, heads.value);
    return views ? joined(writer, heads) : heads;
}

}  // namespace stowage::layers
