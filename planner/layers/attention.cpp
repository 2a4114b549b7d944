#include "planner/layers/attention.hpp"

namespace stowage::layers {
namespace {

LinearSite qkv_site(const Writer& writer) {
    return {.name = "qkv_linear",
            .norm_name = "attn_norm",
            .part = Part::qkv_linear,
            .norm_part = Part::attn_norm,
            .width = writer.dim.qkv_width,
            .bias = writer.model.add_bias_linear || writer.model.add_qkv_bias,
            .group = Module::qkv_linear};
}

LinearSite projection_site(const Writer& writer) {
    return {.name = "attn_proj",
            .norm_name = {},
            .part = Part::attn_proj,
            .norm_part = Part::attn_proj,
            .width = writer.dim.query_width,
            .bias = writer.model.add_bias_linear,
            .group = Module::attn_proj};
}

Shape head_shape(const Dimensions& dim, std::int64_t heads) {
    return {dim.sequence, dim.micro_batch, heads, dim.head_size};
}

bool rotary(const Writer& writer) { return writer.model.position_embedding_type == types::PositionEmbedding::rope; }

/// Whether query, key and value stay views of the packed buffer up to and inside cuDNN.
bool all_views(const Writer& writer) {
    return !rotary(writer) && !writer.model.qk_layernorm && writer.dim.heads == writer.dim.groups;
}

/// Query, key and value on their way from packed to cuDNN. No slot: a view of packed.
struct Heads {
    Slot packed{};
    std::optional<Slot> query;
    std::optional<Slot> key;
};

std::int64_t query_elements(const Dimensions& dim) { return dim.tokens * dim.query_width; }
std::int64_t key_elements(const Dimensions& dim) { return dim.tokens * dim.key_width; }

Slot copy_out(Writer& writer, const std::string& name, std::int64_t heads) {
    const Slot slot = writer.make(name, head_shape(writer.dim, heads));
    writer.memory_kernel(name + ".copy", 4 * writer.dim.tokens * heads * writer.dim.head_size);
    return slot;
}

/// Norm over each head of a contiguous tensor; replaces `heads` by the normed tensor.
HeadNorm head_norm_forward(Writer& writer, const std::string& name, std::int64_t heads, Slot input) {
    const std::int64_t rows = writer.dim.tokens * heads;
    HeadNorm norm;
    norm.output = writer.make(name + ".output", head_shape(writer.dim, heads));
    const NormStatistics statistics = run_norm(writer, name, rows, writer.dim.head_size);
    norm.norm = save_norm(writer, name, rows, writer.dim.head_size, input, statistics, Module::qkv_linear);
    writer.script.drop(input);
    return norm;
}

void norm_heads(Writer& writer, Heads& heads, Attention& attention) {
    const Dimensions& dim = writer.dim;
    const Slot query = heads.query ? *heads.query : copy_out(writer, "query.contiguous", dim.heads);
    attention.query_norm = head_norm_forward(writer, "q_norm", dim.heads, query);
    const Slot key = copy_out(writer, "key.contiguous", dim.groups);
    attention.key_norm = head_norm_forward(writer, "k_norm", dim.groups, key);
    heads.query = attention.query_norm->output;
    heads.key = attention.key_norm->output;
}

/// The group qkv_linear: everything up to the split into heads.
Heads project_to_heads(Writer& writer, Slot input, Attention& attention) {
    ScriptBuilder& script = writer.script;
    script.part(Part::qkv_linear);
    script.start(Module::qkv_linear);
    attention.qkv = norm_linear_forward(writer, qkv_site(writer), input);
    Heads heads{attention.qkv.output, {}, {}};
    if (writer.dim.heads != writer.dim.groups) heads.query = copy_out(writer, "query.reshaped", writer.dim.heads);
    if (writer.model.qk_layernorm) norm_heads(writer, heads, attention);
    script.commit(Module::qkv_linear);
    return heads;
}

Slot rotate(Writer& writer, const std::string& name, std::int64_t heads, std::optional<Slot> source) {
    const Slot rotated = writer.make(name + ".rotated", head_shape(writer.dim, heads));
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

std::int64_t statistics_rows(const Dimensions& dim) { return dim.micro_batch * dim.heads * dim.sequence; }

/// Bytes that attention reads and writes forward: query, key, value, output and the statistics.
std::int64_t forward_traffic(const Dimensions& dim) {
    return 2 * (2 * query_elements(dim) + 2 * key_elements(dim)) + 4 * statistics_rows(dim);
}

/// Of one unmasked product of all scores: 2 b s^2 a k.
double product_flops(const Dimensions& dim) {
    const auto rows = static_cast<double>(dim.micro_batch) * static_cast<double>(dim.sequence);
    return 2.0 * rows * static_cast<double>(dim.sequence) * static_cast<double>(dim.query_width);
}

void save_views(Writer& writer, Slot packed, std::vector<SavedIndex>& core) {
    const Shape shape = head_shape(writer.dim, writer.dim.heads);
    for (const char* name : {"query", "key", "value"})
        core.push_back(writer.script.save_view(name, packed, Module::core_attn, shape, CopyForm::gathered));
}

/// Saves the contiguous tensors; copies made only for cuDNN end with the call.
void save_contiguous(Writer& writer, const Heads& heads, Slot value, std::optional<Slot> key_copy,
                     std::vector<SavedIndex>& core) {
    ScriptBuilder& script = writer.script;
    core.push_back(script.save(*heads.query, Module::core_attn));
    core.push_back(script.save(key_copy ? *key_copy : *heads.key, Module::core_attn));
    core.push_back(script.save(value, Module::core_attn));
    if (key_copy) script.drop(*key_copy);
    script.drop(value);
}

/// The group core_attn; returns the output.
Slot run_core_attention(Writer& writer, const Heads& heads, Attention& attention) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::core_attn);
    script.start(Module::core_attn);
    std::optional<Slot> key_copy;
    std::optional<Slot> value;
    if (!all_views(writer)) {
        if (!heads.key) key_copy = copy_out(writer, "key.contiguous", dim.groups);
        value = copy_out(writer, "value.contiguous", dim.groups);
    }
    const Slot output = writer.make("core_attn.output", head_shape(dim, dim.heads));
    const Slot statistics =
        writer.make("core_attn.softmax_statistics", {dim.micro_batch, dim.heads, dim.sequence, 1}, DataType::fp32);
    writer.attention_kernel("core_attn.forward", product_flops(dim), forward_traffic(dim));
    if (value)
        save_contiguous(writer, heads, *value, key_copy, attention.core);
    else
        save_views(writer, heads.packed, attention.core);
    attention.core.push_back(script.save(output, Module::core_attn));
    attention.core.push_back(script.save(statistics, Module::core_attn));
    script.drop(statistics);
    std::vector<Slot> release;
    if (heads.query) release.push_back(*heads.query);
    if (heads.key) release.push_back(*heads.key);
    release.push_back(heads.packed);
    script.commit(Module::core_attn, std::move(release));
    return output;
}

struct HeadGradients {
    Slot query{};
    Slot key{};
    Slot value{};
};

std::int64_t backward_traffic(const Dimensions& dim) {
    return forward_traffic(dim) + 2 * (2 * query_elements(dim) + 2 * key_elements(dim));
}

void read_all(Writer& writer, const std::vector<SavedIndex>& saved) {
    for (SavedIndex index : saved) writer.script.read(index);
}

void forget_all(Writer& writer, const std::vector<SavedIndex>& saved) {
    for (SavedIndex index : saved) writer.script.forget(index);
}

/// Returns the gradient of packed directly: cuDNN writes the three gradients as views of one buffer.
Slot core_backward_packed(Writer& writer, const Attention& attention, Slot gradient) {
    const Slot packed = writer.make("qkv_linear.output_gradient", writer.dim.full_shape(writer.dim.qkv_width));
    read_all(writer, attention.core);
    writer.attention_kernel("core_attn.backward", 2.5 * product_flops(writer.dim), backward_traffic(writer.dim));
    forget_all(writer, attention.core);
    writer.script.drop(gradient);
    return packed;
}

HeadGradients core_backward_heads(Writer& writer, const Attention& attention, Slot gradient) {
    const Dimensions& dim = writer.dim;
    HeadGradients gradients;
    gradients.query = writer.make("query.gradient", head_shape(dim, dim.heads));
    gradients.key = writer.make("key.gradient", head_shape(dim, dim.groups));
    gradients.value = writer.make("value.gradient", head_shape(dim, dim.groups));
    read_all(writer, attention.core);
    writer.attention_kernel("core_attn.backward", 2.5 * product_flops(dim), backward_traffic(dim));
    forget_all(writer, attention.core);
    writer.script.drop(gradient);
    return gradients;
}

Slot rotate_back(Writer& writer, const std::string& name, std::int64_t heads, Slot gradient) {
    const Slot result = writer.make(name + ".rotary_gradient", head_shape(writer.dim, heads));
    writer.memory_kernel(name + ".rotary_backward", 4 * writer.dim.tokens * heads * writer.dim.head_size);
    writer.script.drop(gradient);
    return result;
}

void rotate_gradients(Writer& writer, HeadGradients& gradients) {
    if (!rotary(writer)) return;
    writer.script.part(Part::rotary);
    gradients.query = rotate_back(writer, "query", writer.dim.heads, gradients.query);
    gradients.key = rotate_back(writer, "key", writer.dim.groups, gradients.key);
}

Slot head_norm_backward(Writer& writer, const HeadNorm& norm, std::int64_t heads, Slot gradient) {
    const Slot result = writer.make(norm.norm.name + ".input_gradient", head_shape(writer.dim, heads));
    norm_backward(writer, norm.norm);
    writer.script.drop(gradient);
    return result;
}

/// Gradients of the heads back into one packed tensor, as the split's backward concatenates them.
Slot pack_gradients(Writer& writer, const Attention& attention, HeadGradients gradients) {
    const Dimensions& dim = writer.dim;
    if (attention.query_norm) {
        gradients.key = head_norm_backward(writer, *attention.key_norm, dim.groups, gradients.key);
        gradients.query = head_norm_backward(writer, *attention.query_norm, dim.heads, gradients.query);
    }
    const Slot packed = writer.make("qkv_linear.output_gradient", dim.full_shape(dim.qkv_width));
    writer.memory_kernel("qkv_linear.pack_gradients", 4 * dim.tokens * dim.qkv_width);
    for (Slot slot : {gradients.query, gradients.key, gradients.value}) writer.script.drop(slot);
    return packed;
}

}  // namespace

Attention attention_forward(Writer& writer, Slot input) {
    ScriptBuilder& script = writer.script;
    Attention attention;
    Heads heads = project_to_heads(writer, input, attention);
    rotate_heads(writer, heads);
    const Slot output = run_core_attention(writer, heads, attention);
    script.part(Part::attn_proj);
    script.start(Module::attn_proj);
    attention.projection = row_linear_forward(writer, projection_site(writer), output);
    script.commit(Module::attn_proj, {output});
    script.drop(output);
    if (heads.query) script.drop(*heads.query);
    if (heads.key) script.drop(*heads.key);
    script.drop(heads.packed);
    return attention;
}

void attention_backward(Writer& writer, const Attention& attention, Slot grad_input) {
    ScriptBuilder& script = writer.script;
    script.part(Part::attn_proj);
    script.commit(Module::attn_proj);
    const Slot output_gradient = row_linear_backward(writer, projection_site(writer), attention.projection);
    script.start(Module::attn_proj);
    script.part(Part::core_attn);
    script.commit(Module::core_attn);
    Slot packed{};
    if (all_views(writer)) {
        packed = core_backward_packed(writer, attention, output_gradient);
        script.start(Module::core_attn);
        script.part(Part::qkv_linear);
        script.commit(Module::qkv_linear);
    } else {
        HeadGradients gradients = core_backward_heads(writer, attention, output_gradient);
        script.start(Module::core_attn);
        rotate_gradients(writer, gradients);
        script.part(Part::qkv_linear);
        script.commit(Module::qkv_linear);
        packed = pack_gradients(writer, attention, gradients);
    }
    norm_linear_backward(writer, qkv_site(writer), attention.qkv, packed, grad_input);
    script.part(Part::qkv_linear);
    script.start(Module::qkv_linear);
}

void attention_parameters(Writer& writer) {
    norm_linear_parameters(writer, qkv_site(writer));
    if (writer.model.qk_layernorm) {
        writer.norm_parameters("q_norm", writer.dim.head_size);
        writer.norm_parameters("k_norm", writer.dim.head_size);
    }
    row_linear_parameters(writer, projection_site(writer));
}

}  // namespace stowage::layers
