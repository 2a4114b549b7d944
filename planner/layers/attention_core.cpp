#include "planner/layers/attention_core.hpp"

#include <algorithm>
#include <utility>

#include "planner/layers/attention_backend.hpp"
#include "planner/layers/attention_context.hpp"
#include "planner/layers/attention_flash.hpp"
#include "planner/layers/attention_unfused.hpp"
#include "planner/layers/rebuilt.hpp"

namespace stowage::layers {
namespace {

bool learns_offset(const Writer& writer) { return writer.model.softmax_type == types::SoftmaxType::learnable; }

bool recomputed(const Writer& writer) { return writer.recomputes(types::RecomputeModule::core_attn); }

std::int64_t statistics_rows(const Dimensions& dim) { return dim.micro_batch * dim.heads * dim.sequence; }

/// Bytes that attention reads and writes forward: query, key, value, output and the statistics.
std::int64_t forward_traffic(const Dimensions& dim) {
    return 2 * dim.tokens * (dim.query_width + dim.key_width + dim.value_width + dim.output_width) +
           4 * statistics_rows(dim);
}

std::int64_t backward_traffic(const Dimensions& dim) {
    return forward_traffic(dim) +
           2 * dim.tokens * (dim.query_width + dim.key_width + dim.value_width + dim.output_width);
}

/// This rank's work. The last row sees `longest` keys, the row before as many or one less; context-parallel ranks have
/// equal shares.
AttentionWork work_of(const Writer& writer, bool windowed) {
    const Dimensions& dim = writer.dim;
    const auto sequence = static_cast<double>(dim.full_sequence);
    double seen = sequence;
    if (windowed && writer.model.window_size)
        seen = std::min(sequence, static_cast<double>(*writer.model.window_size + 1));
    const auto heads = static_cast<double>(dim.micro_batch * dim.heads);
    return {.rows = heads * sequence / static_cast<double>(dim.context),
            .keys = seen - seen * seen / (2 * sequence),
            .longest = seen,
            .head_size = static_cast<double>(dim.head_size + dim.value_head_size) / 2};
}

/// 2 P a of this rank: a product with size n takes n times that.
double pair_flops(const Writer& writer, bool windowed) {
    const AttentionWork work = work_of(writer, windowed);
    return 2 * work.rows * work.keys;
}

double forward_flops(const Writer& writer, bool windowed) {
    return pair_flops(writer, windowed) * static_cast<double>(writer.dim.head_size + writer.dim.value_head_size);
}

double backward_flops(const Writer& writer, bool windowed) {
    return pair_flops(writer, windowed) *
           static_cast<double>(3 * writer.dim.head_size + 2 * writer.dim.value_head_size);
}

AttentionCost cost_of(const Writer& writer, bool windowed) {
    return {forward_flops(writer, windowed), backward_flops(writer, windowed), forward_traffic(writer.dim),
            backward_traffic(writer.dim), work_of(writer, windowed)};
}

Slot stand_in_for(Writer& writer, const Heads& heads, const char* name, Slot slot, const Shape& shape) {
    return heads.rebuilt ? stand_in(writer, name, shape) : slot;
}

void save_views(Writer& writer, Slot packed, std::vector<SavedIndex>& saved) {
    const Shape shape = head_shape(writer.dim, writer.dim.heads, writer.dim.head_size);
    for (const char* name : {"query", "key", "value"})
        saved.push_back(writer.script.save_view(name, packed, Module::core_attn, shape, CopyForm::gathered));
}

/// Query, key and value as attention saves them: stand-ins of those that are rebuilt.
ContextInputs inputs_of(Writer& writer, const Heads& heads, std::optional<Slot> key_copy,
                        std::optional<Slot> value_copy) {
    const Dimensions& dim = writer.dim;
    const Slot key = key_copy ? *key_copy : *heads.key;
    const Slot value = value_copy ? *value_copy : *heads.value;
    return {stand_in_for(writer, heads, "query", *heads.query, head_shape(dim, dim.heads, dim.head_size)),
            stand_in_for(writer, heads, "key", key, head_shape(dim, dim.groups, dim.head_size)),
            stand_in_for(writer, heads, "value", value, head_shape(dim, dim.groups, dim.value_head_size))};
}

/// One kernel over the whole sequence. `inputs`: none where all three are views of packed.
Slot attend_alone(Writer& writer, const Heads& heads, const std::optional<ContextInputs>& inputs,
                  const AttentionCost& cost, std::vector<SavedIndex>& saved) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Slot output = writer.make("core_attn.output", head_shape(dim, dim.heads, dim.value_head_size));
    const Slot statistics =
        writer.make("core_attn.softmax_statistics", {dim.micro_batch, dim.heads, dim.sequence, 1}, DataType::fp32);
    writer.attention_kernel("core_attn.forward", cost.forward, cost.forward_traffic, cost.work);
    if (inputs)
        for (Slot slot : {inputs->query, inputs->key, inputs->value})
            saved.push_back(script.save(slot, Module::core_attn));
    else
        save_views(writer, *heads.packed, saved);
    saved.push_back(script.save(output, Module::core_attn));
    saved.push_back(script.save(statistics, Module::core_attn));
    script.drop(statistics);
    return output;
}

/// Attention with what it saves; fills `saved` and returns the output. Copies made only for cuDNN end with the call.
Slot attend(Writer& writer, const Heads& heads, bool windowed, std::vector<SavedIndex>& saved) {
    const Dimensions& dim = writer.dim;
    const AttentionCost cost = cost_of(writer, windowed);
    const AttentionBackend backend = attention_backend(writer.scenario);
    const bool unfused = backend == AttentionBackend::unfused;
    if (backend == AttentionBackend::flash) return flash_attention_forward(writer, heads, cost, saved);
    if (heads.views && unfused) return unfused_attention_forward(writer, {{}, {}, {}, heads.packed}, saved);
    if (heads.views) return attend_alone(writer, heads, std::nullopt, cost, saved);
    std::optional<Slot> key_copy;
    std::optional<Slot> value_copy;
    if (!heads.key) key_copy = copy_heads(writer, "key.contiguous", dim.groups, dim.head_size);
    if (!heads.value) value_copy = copy_heads(writer, "value.contiguous", dim.groups, dim.value_head_size);
    const ContextInputs inputs = inputs_of(writer, heads, key_copy, value_copy);
    const auto run = [&] {
        if (unfused) return unfused_attention_forward(writer, {inputs.query, inputs.key, inputs.value, {}}, saved);
        if (dim.context > 1) return context_attention_forward(writer, inputs, cost, saved);
        return attend_alone(writer, heads, inputs, cost, saved);
    };
    const Slot output = run();
    if (key_copy) writer.script.drop(*key_copy);
    if (value_copy) writer.script.drop(*value_copy);
    return output;
}

std::vector<Slot> released(const Heads& heads) {
    std::vector<Slot> release;
    for (const auto& slot : {heads.query, heads.key, heads.value, heads.packed})
        if (slot) release.push_back(*slot);
    return release;
}

/// The checkpoint's own saves: the three inputs, whatever storage they are views of.
void save_inputs(Writer& writer, CoreAttention& attention) {
    const Heads& heads = attention.heads;
    if (heads.rebuilt) return;
    for (const auto& slot : {heads.query, heads.key, heads.value})
        if (slot) attention.checkpoint.push_back(writer.script.save(*slot));
    if (!heads.query || !heads.key || !heads.value) attention.checkpoint.push_back(writer.script.save(*heads.packed));
}

/// The forward inside the checkpoint's backward; its output is used by nobody but the backward.
std::vector<SavedIndex> attend_again(Writer& writer, const CoreAttention& attention) {
    ScriptBuilder& script = writer.script;
    for (SavedIndex index : attention.checkpoint) script.read(index);
    script.phase(Phase::recompute);
    const Saving before = script.saving(Saving::rebuild);
    std::vector<SavedIndex> saved;
    const Slot output = attend(writer, attention.heads, attention.windowed, saved);
    script.drop(output);
    script.saving(before);
    script.phase(Phase::backward);
    return saved;
}

HeadGradients gradients_alone(Writer& writer, bool views, const AttentionCost& cost,
                              const std::vector<SavedIndex>& saved) {
    const Dimensions& dim = writer.dim;
    HeadGradients gradients;
    if (views) {
        gradients.packed = writer.make("qkv_linear.output_gradient", dim.full_shape(dim.qkv_width));
    } else {
        gradients.query = writer.make("query.gradient", head_shape(dim, dim.heads, dim.head_size));
        gradients.key = writer.make("key.gradient", head_shape(dim, dim.groups, dim.head_size));
        gradients.value = writer.make("value.gradient", head_shape(dim, dim.groups, dim.value_head_size));
    }
    for (SavedIndex index : saved) writer.script.read(index);
    writer.attention_kernel("core_attn.backward", cost.backward, cost.backward_traffic, cost.work);
    return gradients;
}

}  // namespace

Shape head_shape(const Dimensions& dim, std::int64_t heads, std::int64_t size) {
    return {dim.sequence, dim.micro_batch, heads, size};
}

Slot copy_heads(Writer& writer, const std::string& name, std::int64_t heads, std::int64_t size) {
    const Slot slot = writer.make(name, head_shape(writer.dim, heads, size));
    writer.memory_kernel(name + ".copy", 4 * writer.dim.tokens * heads * size);
    return slot;
}

CoreAttention core_attention_forward(Writer& writer, const Heads& heads, bool windowed) {
    ScriptBuilder& script = writer.script;
    CoreAttention attention{heads, windowed, {}, {}, {}};
    script.part(Part::core_attn);
    if (recomputed(writer)) {
        save_inputs(writer, attention);
        const Saving before = script.saving(Saving::nothing);
        attention.output = attend(writer, heads, windowed, attention.saved);
        script.saving(before);
        return attention;
    }
    script.start(Module::core_attn);
    attention.output = attend(writer, heads, windowed, attention.saved);
    script.commit(Module::core_attn, released(heads));
    return attention;
}

HeadGradients core_attention_backward(Writer& writer, const CoreAttention& attention, Slot gradient) {
    ScriptBuilder& script = writer.script;
    const bool again = recomputed(writer);
    script.part(Part::core_attn);
    if (!again) script.commit(Module::core_attn);
    const std::vector<SavedIndex> saved = again ? attend_again(writer, attention) : attention.saved;
    const AttentionCost cost = cost_of(writer, attention.windowed);
    const AttentionBackend backend = attention_backend(writer.scenario);
    const bool unfused = backend == AttentionBackend::unfused;
    const auto run = [&] {
        if (backend == AttentionBackend::flash)
            return flash_attention_backward(writer, attention.heads.views, cost, saved);
        if (unfused) return unfused_attention_backward(writer, attention.heads.views, saved);
        if (writer.dim.context > 1) return context_attention_backward(writer, cost, saved);
        return gradients_alone(writer, attention.heads.views, cost, saved);
    };
    const HeadGradients gradients = run();
    if (learns_offset(writer)) writer.accumulate_small_gradient("core_attn.softmax_offset", {writer.dim.heads});
    if (!unfused)
        for (SavedIndex index : saved) script.forget(index);
    for (SavedIndex index : attention.checkpoint) script.forget(index);
    script.drop(gradient);
    if (!again) script.start(Module::core_attn);
    return gradients;
}

void core_attention_parameters(Writer& writer) {
    if (learns_offset(writer)) writer.sharded_parameter("core_attn.softmax_offset", {writer.dim.heads});
}

}  // namespace stowage::layers
