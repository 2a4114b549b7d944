#include "planner/layers/attention.hpp"

#include <utility>

#include "planner/layers/attention_backend.hpp"

namespace stowage::layers {
namespace {

LinearSite qkv_site(const Writer& writer) {
    LinearSite site;
    site.name = "qkv_linear";
    site.norm_name = "attn_norm";
    site.part = Part::qkv_linear;
    site.norm_part = Part::attn_norm;
    site.width = writer.dim.qkv_width;
    site.bias = writer.model.add_bias_linear || writer.model.add_qkv_bias;
    site.group = Module::qkv_linear;
    return site;
}

bool rotary(const Writer& writer) { return writer.model.position_embedding_type == types::PositionEmbedding::rope; }

bool gated(const Writer& writer) { return writer.model.attention_output_gate; }

/// Whether query, key and value stay views of the packed buffer up to and inside cuDNN.
bool all_views(const Writer& writer) {
    return !rotary(writer) && !writer.model.qk_layernorm && !gated(writer) && writer.dim.heads == writer.dim.groups &&
           writer.dim.context == 1;
}

bool norms_whole_width(const Writer& writer) { return writer.model.qk_norm_span == types::QkNormSpan::width; }

/// Norm of a contiguous tensor of `heads` heads, each for itself or all at once; drops it.
HeadNorm head_norm_forward(Writer& writer, const std::string& name, std::int64_t heads, Slot input) {
    const std::int64_t size = writer.dim.head_size;
    const std::int64_t rows = norms_whole_width(writer) ? writer.dim.tokens : writer.dim.tokens * heads;
    const std::int64_t width = norms_whole_width(writer) ? heads * size : size;
    HeadNorm norm;
    norm.shape = head_shape(writer.dim, heads, size);
    norm.output = writer.make(name + ".output", norm.shape);
    const NormStatistics statistics = run_norm(writer, name, rows, width);
    norm.norm = save_norm(writer, name, rows, width, input, statistics, Module::qkv_linear);
    writer.script.drop(input);
    return norm;
}

void norm_heads(Writer& writer, Heads& heads, Attention& attention) {
    const Dimensions& dim = writer.dim;
    const Slot query = heads.query ? *heads.query : copy_heads(writer, "query.contiguous", dim.heads, dim.head_size);
    attention.query_norm = head_norm_forward(writer, "q_norm", dim.heads, query);
    const Slot key = copy_heads(writer, "key.contiguous", dim.groups, dim.head_size);
    attention.key_norm = head_norm_forward(writer, "k_norm", dim.groups, key);
    heads.query = attention.query_norm->output;
    heads.key = attention.key_norm->output;
}

/// The group qkv_linear: everything up to the split into heads. `gate` is made where there is one.
Heads project_to_heads(Writer& writer, Slot input, Attention& attention, std::optional<Slot>& gate) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::qkv_linear);
    script.start(Module::qkv_linear);
    attention.qkv = norm_linear_forward(writer, qkv_site(writer), input);
    Heads heads;
    heads.packed = attention.qkv.output;
    heads.views = all_views(writer);
    if (dim.heads != dim.groups) heads.query = copy_heads(writer, "query.reshaped", dim.heads, dim.head_size);
    if (gated(writer)) gate = copy_heads(writer, "gate.reshaped", dim.heads, dim.value_head_size);
    if (writer.model.qk_layernorm) norm_heads(writer, heads, attention);
    script.commit(Module::qkv_linear);
    return heads;
}

Slot rotate(Writer& writer, const std::string& name, std::int64_t heads, std::optional<Slot> source) {
    const Slot rotated = writer.make(name + ".rotated", head_shape(writer.dim, heads, writer.dim.head_size));
    writer.memory_kernel(name + ".rotary", 4 * writer.dim.tokens * heads * writer.dim.head_size);
    if (source) writer.script.drop(*source);
    return rotated;
}

void rotate_heads(Writer& writer, Heads& heads) {
    if (!rotary(writer)) return;
    writer.script.part(Part::rotary);
    heads.query = rotate(writer, "query", writer.dim.heads, heads.query);
    heads.key = rotate(writer, "key", writer.dim.groups, heads.key);
}

/// cuDNN takes a query that is not contiguous as it takes the value: copied first.
void make_query_contiguous(Writer& writer, Heads& heads) {
    if (heads.views || heads.query || attention_backend(writer.scenario) == AttentionBackend::flash) return;
    writer.script.part(Part::core_attn);
    heads.query = copy_heads(writer, "query.contiguous", writer.dim.heads, writer.dim.head_size);
}

/// Returns the projection's input: attention's output, gated where there is a gate.
Slot apply_gate(Writer& writer, Attention& attention, std::optional<Slot> gate) {
    const Slot output = attention.core.output;
    if (!gate) return output;
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Slot product = writer.make("gate.product", head_shape(dim, dim.heads, dim.value_head_size));
    writer.memory_kernel("gate.forward", 3 * 2 * dim.tokens * dim.output_width);
    attention.gate = OutputGate{script.save(output), script.save(*gate)};
    script.drop(*gate);
    script.drop(output);
    return product;
}

/// Returns attention's output gradient and the gate's; drops the product's.
std::pair<Slot, std::optional<Slot>> gate_backward(Writer& writer, const Attention& attention, Slot gradient) {
    if (!attention.gate) return {gradient, std::nullopt};
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::core_attn);
    const Shape shape = head_shape(dim, dim.heads, dim.value_head_size);
    const Slot output_gradient = writer.make("core_attn.output_gradient", shape);
    const Slot gate_gradient = writer.make("gate.gradient", shape);
    script.read(attention.gate->output);
    script.read(attention.gate->gate);
    writer.memory_kernel("gate.backward", 5 * 2 * dim.tokens * dim.output_width);
    script.forget(attention.gate->output);
    script.forget(attention.gate->gate);
    script.drop(gradient);
    return {output_gradient, gate_gradient};
}

Slot rotate_back(Writer& writer, const std::string& name, std::int64_t heads, std::optional<Slot> gradient) {
    const Slot result = writer.make(name + ".rotary_gradient", head_shape(writer.dim, heads, writer.dim.head_size));
    writer.memory_kernel(name + ".rotary_backward", 4 * writer.dim.tokens * heads * writer.dim.head_size);
    if (gradient) writer.script.drop(*gradient);
    return result;
}

void rotate_gradients(Writer& writer, HeadGradients& gradients) {
    if (!rotary(writer)) return;
    writer.script.part(Part::rotary);
    gradients.query = rotate_back(writer, "query", writer.dim.heads, gradients.query);
    gradients.key = rotate_back(writer, "key", writer.dim.groups, gradients.key);
}

Slot head_norm_backward(Writer& writer, const HeadNorm& norm, std::optional<Slot> gradient) {
    const Slot result = writer.make(norm.norm.name + ".input_gradient", norm.shape);
    norm_backward(writer, norm.norm);
    if (gradient) writer.script.drop(*gradient);
    return result;
}

/// Gradients of the heads back into one packed tensor, as the split's backward concatenates them.
Slot pack_gradients(Writer& writer, const Attention& attention, HeadGradients gradients, std::optional<Slot> gate) {
    const Dimensions& dim = writer.dim;
    if (attention.query_norm) {
        gradients.key = head_norm_backward(writer, *attention.key_norm, gradients.key);
        gradients.query = head_norm_backward(writer, *attention.query_norm, gradients.query);
    }
    const Slot packed = writer.make("qkv_linear.output_gradient", dim.full_shape(dim.qkv_width));
    writer.memory_kernel("qkv_linear.pack_gradients", 4 * dim.tokens * dim.qkv_width);
    for (Slot slot : {gradients.query, gradients.value}) writer.script.drop(slot);
    if (gradients.key) writer.script.drop(*gradients.key);
    if (gate) writer.script.drop(*gate);
    return packed;
}

void head_norm_parameters(Writer& writer, const std::string& name, std::int64_t heads) {
    if (norms_whole_width(writer))
        writer.sharded_parameter(name + "_width.weight", {heads * writer.dim.head_size});
    else
        writer.norm_parameters(name, writer.dim.head_size);
}

}  // namespace

LinearSite projection_site(const Writer& writer) {
    LinearSite site;
    site.name = "attn_proj";
    site.part = Part::attn_proj;
    site.width = writer.dim.output_width;
    site.bias = writer.model.add_bias_linear;
    site.group = Module::attn_proj;
    site.split = Split::rows;
    site.save_original = writer.scenario.precision != types::Precision::fp8_delayed;
    return site;
}

Attention attention_forward(Writer& writer, Slot input, bool windowed) {
    ScriptBuilder& script = writer.script;
    Attention attention;
    std::optional<Slot> gate;
    Heads heads = project_to_heads(writer, input, attention, gate);
    rotate_heads(writer, heads);
    make_query_contiguous(writer, heads);
    attention.core = core_attention_forward(writer, heads, windowed);
    const Slot output = apply_gate(writer, attention, gate);
    script.part(Part::attn_proj);
    script.start(Module::attn_proj);
    attention.projection = row_linear_forward(writer, projection_site(writer), output);
    script.commit(Module::attn_proj, {output});
    script.drop(output);
    if (heads.query) script.drop(*heads.query);
    if (heads.key) script.drop(*heads.key);
    script.drop(*heads.packed);
    return attention;
}

void attention_backward(Writer& writer, const Attention& attention, Slot grad_input) {
    ScriptBuilder& script = writer.script;
    script.part(Part::attn_proj);
    script.commit(Module::attn_proj);
    const Slot product_gradient = row_linear_backward(writer, projection_site(writer), attention.projection);
    script.start(Module::attn_proj);
    const auto [output_gradient, gate_gradient] = gate_backward(writer, attention, product_gradient);
    HeadGradients gradients = core_attention_backward(writer, attention.core, output_gradient);
    if (!gradients.packed) rotate_gradients(writer, gradients);
    script.part(Part::qkv_linear);
    script.commit(Module::qkv_linear);
    const Slot packed =
        gradients.packed ? *gradients.packed : pack_gradients(writer, attention, gradients, gate_gradient);
    norm_linear_backward(writer, qkv_site(writer), attention.qkv, packed, grad_input);
    script.part(Part::qkv_linear);
    script.start(Module::qkv_linear);
}

void attention_parameters(Writer& writer) {
    norm_linear_parameters(writer, qkv_site(writer));
    if (writer.model.qk_layernorm) {
        head_norm_parameters(writer, "q_norm", writer.dim.heads);
        head_norm_parameters(writer, "k_norm", writer.dim.groups);
    }
    core_attention_parameters(writer);
    row_linear_parameters(writer, projection_site(writer));
}

}  // namespace stowage::layers
