#include "planner/layers/attention_context.hpp"

#include <algorithm>
#include <string>

#include "planner/layers/operand.hpp"

namespace stowage::layers {
namespace {

using types::ContextCommunication;

std::int64_t key_value_elements(const Dimensions& dim) { return dim.tokens * (dim.key_width + dim.value_width); }

std::string numbered(const char* name, std::int64_t number) { return std::string(name) + std::to_string(number); }

/// A step of the ring. The first is causal within the rank's own tokens; the others multiply whole blocks.
AttentionWork ring_step(const AttentionCost& cost, std::int64_t steps, bool first) {
    AttentionWork work = cost.work;
    work.keys /= static_cast<double>(steps);
    work.longest = first ? 2 * work.keys : work.keys;
    return work;
}

/// One of the two chunks: every row sees all keys before the chunk and on average half of the chunk's.
AttentionWork chunk_work(const Writer& writer, const AttentionCost& cost, std::int64_t chunks) {
    AttentionWork work = cost.work;
    work.rows /= static_cast<double>(chunks);
    const double half_chunk = static_cast<double>(writer.dim.sequence / chunks) / 2;
    work.longest = std::min(work.longest, work.keys + half_chunk);
    return work;
}

double share(double operations, std::int64_t parts) { return operations / static_cast<double>(parts); }

Slot make_statistics(Writer& writer, const std::string& name, std::int64_t rows) {
    return writer.make(name, {writer.dim.micro_batch, writer.dim.heads, rows, 1}, DataType::fp32);
}

Slot make_output(Writer& writer, const std::string& name, DataType type = DataType::bf16) {
    return writer.make(name, head_shape(writer.dim, writer.dim.heads, writer.dim.value_head_size), type);
}

void save_all(Writer& writer, const std::vector<Slot>& slots, std::vector<SavedIndex>& saved) {
    for (Slot slot : slots) saved.push_back(writer.script.save(slot, Module::core_attn));
}

void read_all(Writer& writer, const std::vector<SavedIndex>& saved) {
    for (SavedIndex index : saved) writer.script.read(index);
}

/// Elements of query, key or value.
std::int64_t elements_of(const Dimensions& dim, std::int64_t width) { return dim.tokens * width; }

// --------------------------------------------------------------------------------------------------------------- ring

void exchange(Writer& writer, const std::string& name, std::int64_t elements) {
    writer.collective(name, CollectiveKind::exchange, CommGroup::context, 2 * elements, false);
}

/// Partial outputs and the tensors that went round; the last of the latter is returned in `last`.
std::vector<Slot> ring_steps(Writer& writer, const AttentionCost& cost, Slot& last) {
    const Dimensions& dim = writer.dim;
    const std::int64_t elements = key_value_elements(dim);
    std::vector<Slot> made;
    last = writer.make("ring.key_value0", {elements});
    writer.memory_kernel("ring.join_key_value", 4 * elements);
    for (std::int64_t step = 0; step < dim.context; ++step) {
        Slot next = last;
        if (step > 0) writer.script.join_collectives();
        if (step + 1 < dim.context) {
            next = writer.make(numbered("ring.key_value", step + 1), {elements});
            exchange(writer, numbered("ring.exchange", step), elements);
            made.push_back(last);
        }
        made.push_back(make_output(writer, numbered("ring.output", step)));
        made.push_back(make_statistics(writer, numbered("ring.statistics", step), dim.sequence));
        writer.attention_kernel("core_attn.forward", share(cost.forward, dim.context), cost.forward_traffic,
                                ring_step(cost, dim.context, step == 0));
        last = next;
    }
    return made;
}

Slot ring_forward(Writer& writer, const ContextInputs& inputs, const AttentionCost& cost,
                  std::vector<SavedIndex>& saved) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    Slot last{};
    const std::vector<Slot> made = ring_steps(writer, cost, last);
    const Slot statistics = make_statistics(writer, "core_attn.softmax_statistics", dim.sequence);
    const Slot sum = make_output(writer, "ring.output_sum", DataType::fp32);
    const std::int64_t outputs = elements_of(dim, dim.output_width);
    writer.memory_kernel("ring.sum_outputs", dim.context * outputs * (2 + 4 + 4));
    const Slot output = make_output(writer, "core_attn.output");
    writer.memory_kernel("ring.round_output", 6 * outputs);
    save_all(writer, {inputs.query, last, output, statistics}, saved);
    for (Slot slot : {last, statistics, sum}) script.drop(slot);
    drop_all(writer, made);
    return output;
}

/// One step's gradients added to the sums.
void ring_step_backward(Writer& writer, const AttentionCost& cost, bool first) {
    const Dimensions& dim = writer.dim;
    const std::vector<Slot> partial{
        writer.make("ring.query_gradient", head_shape(dim, dim.heads, dim.head_size)),
        writer.make("ring.key_gradient", head_shape(dim, dim.groups, dim.head_size)),
        writer.make("ring.value_gradient", head_shape(dim, dim.groups, dim.value_head_size)),
    };
    writer.attention_kernel("core_attn.backward", share(cost.backward, dim.context), cost.backward_traffic,
                            ring_step(cost, dim.context, first));
    const Slot joined = writer.make("ring.key_value_gradient", {key_value_elements(dim)});
    writer.memory_kernel("ring.join_gradients", 4 * key_value_elements(dim));
    writer.script.join_collectives();
    writer.memory_kernel("ring.add_gradients", 6 * (key_value_elements(dim) + elements_of(dim, dim.query_width)));
    writer.script.drop(joined);
    drop_all(writer, partial);
}

HeadGradients ring_backward(Writer& writer, const AttentionCost& cost, const std::vector<SavedIndex>& saved) {
    const Dimensions& dim = writer.dim;
    const std::int64_t elements = key_value_elements(dim);
    HeadGradients gradients;
    gradients.query = writer.make("query.gradient", head_shape(dim, dim.heads, dim.head_size));
    gradients.value = writer.make("ring.buffer0", {2, elements});
    const Slot other = writer.make("ring.buffer1", {2, elements});
    read_all(writer, saved);
    writer.memory_kernel("ring.copy_key_value", 4 * elements);
    for (std::int64_t step = 0; step < dim.context; ++step) {
        const bool alone = step == 0 || step + 1 == dim.context;
        exchange(writer, numbered("ring.exchange_gradients", step), alone ? elements : 2 * elements);
        ring_step_backward(writer, cost, step == 0);
    }
    writer.script.drop(other);
    return gradients;
}

// ---------------------------------------------------------------------------------------------------------- all-gather

/// A tensor of `width` a token over all ranks, in the sequence's order; the rows as they arrive are gone.
Slot gather_ordered(Writer& writer, const std::string& name, std::int64_t width) {
    const Dimensions& dim = writer.dim;
    const std::int64_t elements = dim.context * elements_of(dim, width);
    const Slot arrived = writer.make(name + ".gathered", {elements});
    writer.collective(name + ".gather", CollectiveKind::all_gather, CommGroup::context, 2 * elements);
    const Slot ordered = writer.make(name + ".ordered", {elements});
    writer.memory_kernel(name + ".order", 4 * elements);
    writer.script.drop(arrived);
    return ordered;
}

std::vector<Slot> gather_key_value(Writer& writer) {
    return {gather_ordered(writer, "key", writer.dim.key_width),
            gather_ordered(writer, "value", writer.dim.value_width)};
}

constexpr std::int64_t kChunks = 2;

Slot gathered_forward(Writer& writer, const ContextInputs& inputs, const AttentionCost& cost,
                      std::vector<SavedIndex>& saved) {
    const Dimensions& dim = writer.dim;
    std::vector<Slot> temporaries = gather_key_value(writer);
    const Slot output = make_output(writer, "core_attn.output");
    std::vector<Slot> kept{inputs.query, inputs.key, inputs.value};
    for (std::int64_t chunk = 0; chunk < kChunks; ++chunk) {
        const Slot part = writer.make(numbered("core_attn.output_chunk", chunk),
                                      {dim.sequence / kChunks, dim.micro_batch, dim.heads, dim.value_head_size});
        const Slot statistics =
            make_statistics(writer, numbered("core_attn.softmax_statistics", chunk), dim.sequence / kChunks);
        writer.attention_kernel("core_attn.forward", share(cost.forward, kChunks), cost.forward_traffic,
                                chunk_work(writer, cost, kChunks));
        writer.memory_kernel("core_attn.place_chunk", 4 * elements_of(dim, dim.output_width) / kChunks);
        for (Slot slot : {part, statistics}) {
            kept.push_back(slot);
            temporaries.push_back(slot);
        }
    }
    save_all(writer, kept, saved);
    drop_all(writer, temporaries);
    return output;
}

/// Gradients of all ranks' tokens, put in the order of the ranks and summed over them.
Slot scatter_ordered(Writer& writer, const std::string& name, Slot whole, std::int64_t width, const Shape& shape) {
    const std::int64_t elements = writer.dim.context * elements_of(writer.dim, width);
    const Slot ordered = writer.make(name + ".gradient_ordered", {elements});
    writer.memory_kernel(name + ".order_gradient", 4 * elements);
    writer.script.drop(whole);
    const Slot own = writer.make(name + ".gradient", shape);
    writer.collective(name + ".scatter_gradient", CollectiveKind::reduce_scatter, CommGroup::context, 2 * elements);
    writer.script.drop(ordered);
    return own;
}

HeadGradients gathered_backward(Writer& writer, const AttentionCost& cost, const std::vector<SavedIndex>& saved) {
    const Dimensions& dim = writer.dim;
    HeadGradients gradients;
    gradients.query = writer.make("query.gradient", head_shape(dim, dim.heads, dim.head_size));
    const Slot key = writer.make("key.gradient_whole", {dim.context * elements_of(dim, dim.key_width)});
    const Slot value = writer.make("value.gradient_whole", {dim.context * elements_of(dim, dim.value_width)});
    read_all(writer, saved);
    std::vector<Slot> temporaries = gather_key_value(writer);
    // The two chunks see (2c + 1) chunks of keys and values together, whatever the rank.
    const std::int64_t seen = key_value_elements(dim) * (2 * dim.context + 1) / 2;
    temporaries.push_back(writer.make("query.gradient_chunks", head_shape(dim, dim.heads, dim.head_size)));
    temporaries.push_back(writer.make("key_value.gradient_chunks", {seen}));
    for (std::int64_t chunk = 0; chunk < kChunks; ++chunk)
        writer.attention_kernel("core_attn.backward", share(cost.backward, kChunks), cost.backward_traffic,
                                chunk_work(writer, cost, kChunks));
    writer.memory_kernel("core_attn.add_chunks", 6 * seen + 4 * elements_of(dim, dim.query_width));
    gradients.key = scatter_ordered(writer, "key", key, dim.key_width, head_shape(dim, dim.groups, dim.head_size));
    gradients.value =
        scatter_ordered(writer, "value", value, dim.value_width, head_shape(dim, dim.groups, dim.value_head_size));
    drop_all(writer, temporaries);
    return gradients;
}

// ---------------------------------------------------------------------------------------------------------- all-to-all

/// A tensor's share of heads for the whole sequence, or back: copied apart, exchanged, put in order.
Slot all_to_all(Writer& writer, const std::string& name, std::int64_t width, Shape shape) {
    const std::int64_t elements = elements_of(writer.dim, width);
    const Slot apart = writer.make(name + ".apart", {elements});
    writer.memory_kernel(name + ".part", 4 * elements);
    const Slot received = writer.make(name + ".received", {elements});
    writer.collective(name + ".all_to_all", CollectiveKind::all_to_all, CommGroup::context, 2 * elements);
    writer.script.drop(apart);
    const Slot ordered = writer.make(name, std::move(shape));
    writer.memory_kernel(name + ".order", 4 * elements);
    writer.script.drop(received);
    return ordered;
}

/// [s, b, heads / c, size]: all of the sequence.
Shape exchanged_shape(const Dimensions& dim, std::int64_t heads, std::int64_t size) {
    return {dim.full_sequence, dim.micro_batch, heads / dim.context, size};
}

Slot exchanged_forward(Writer& writer, const AttentionCost& cost, std::vector<SavedIndex>& saved) {
    const Dimensions& dim = writer.dim;
    const Slot query =
        all_to_all(writer, "query.exchanged", dim.query_width, exchanged_shape(dim, dim.heads, dim.head_size));
    const Slot key =
        all_to_all(writer, "key.exchanged", dim.key_width, exchanged_shape(dim, dim.groups, dim.head_size));
    const Slot value =
        all_to_all(writer, "value.exchanged", dim.value_width, exchanged_shape(dim, dim.groups, dim.value_head_size));
    const Slot part = writer.make("core_attn.output_part", exchanged_shape(dim, dim.heads, dim.value_head_size));
    const Slot statistics =
        writer.make("core_attn.softmax_statistics", {dim.micro_batch, dim.heads / dim.context, dim.full_sequence, 1},
                    DataType::fp32);
    writer.attention_kernel("core_attn.forward", cost.forward, cost.forward_traffic, cost.work);
    const Slot output =
        all_to_all(writer, "core_attn.output", dim.output_width, head_shape(dim, dim.heads, dim.value_head_size));
    writer.script.drop(part);
    save_all(writer, {query, key, value, output, statistics}, saved);
    drop_all(writer, {query, key, value, statistics});
    return output;
}

HeadGradients exchanged_backward(Writer& writer, const AttentionCost& cost, const std::vector<SavedIndex>& saved) {
    const Dimensions& dim = writer.dim;
    const Shape output_shape = exchanged_shape(dim, dim.heads, dim.value_head_size);
    read_all(writer, saved);
    std::vector<Slot> temporaries{
        all_to_all(writer, "core_attn.output_again", dim.output_width, output_shape),
        all_to_all(writer, "core_attn.gradient_exchanged", dim.output_width, output_shape),
        writer.make("query.gradient_part", exchanged_shape(dim, dim.heads, dim.head_size)),
        writer.make("key.gradient_part", exchanged_shape(dim, dim.groups, dim.head_size)),
        writer.make("value.gradient_part", exchanged_shape(dim, dim.groups, dim.value_head_size)),
    };
    writer.attention_kernel("core_attn.backward", cost.backward, cost.backward_traffic, cost.work);
    HeadGradients gradients;
    gradients.query = all_to_all(writer, "query.gradient", dim.query_width, head_shape(dim, dim.heads, dim.head_size));
    gradients.key = all_to_all(writer, "key.gradient", dim.key_width, head_shape(dim, dim.groups, dim.head_size));
    gradients.value =
        all_to_all(writer, "value.gradient", dim.value_width, head_shape(dim, dim.groups, dim.value_head_size));
    drop_all(writer, temporaries);
    return gradients;
}

}  // namespace

Slot context_attention_forward(Writer& writer, const ContextInputs& saved_as, const AttentionCost& cost,
                               std::vector<SavedIndex>& saved) {
    switch (writer.scenario.parallel.cp_comm_type) {
        case ContextCommunication::all_gather: return gathered_forward(writer, saved_as, cost, saved);
        case ContextCommunication::a2a: return exchanged_forward(writer, cost, saved);
        default: return ring_forward(writer, saved_as, cost, saved);
    }
}

HeadGradients context_attention_backward(Writer& writer, const AttentionCost& cost,
                                         const std::vector<SavedIndex>& saved) {
    switch (writer.scenario.parallel.cp_comm_type) {
        case ContextCommunication::all_gather: return gathered_backward(writer, cost, saved);
        case ContextCommunication::a2a: return exchanged_backward(writer, cost, saved);
        default: return ring_backward(writer, cost, saved);
    }
}

}  // namespace stowage::layers
