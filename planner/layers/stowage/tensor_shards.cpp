#include "planner/layers/stowage/tensor_shards.hpp"

namespace stowage::layers {
namespace {

/// Of a hidden-state tensor over all tokens; nothing with one rank.
void collective(StowageWriter& writer, const std::string& name, CollectiveKind kind, bool blocks_main) {
    const Dimensions& dim = writer.dim;
    if (dim.tensor == 1) return;
    writer.script.collective({name, kind, CommGroup::tensor, Bytes{2 * dim.tokens * dim.hidden}, blocks_main});
}

/// Rows of a share, and as many times that as there are ranks.
CallSizes share_sizes(const StowageWriter& writer) {
    CallSizes sizes = writer.local_rows_and_columns(writer.dim.hidden);
    sizes.batch = writer.dim.tensor;
    return sizes;
}

Slot whole_tensor(StowageWriter& writer, const std::string& name) {
    return writer.script.tensor(name, writer.dim.full_shape(writer.dim.hidden));
}

void repeat_rows(StowageWriter& writer, const std::string& name, CallOperand share, Slot whole) {
    const Dimensions& dim = writer.dim;
    writer.memory_kernel(name, 2 * (dim.local_tokens + dim.tokens) * dim.hidden,
                         {Call::repeat_rows, share_sizes(writer), {share, writes(whole)}});
}

void keep_rows(StowageWriter& writer, const std::string& name, Slot whole, Slot share) {
    writer.memory_kernel(name, 2 * 2 * writer.dim.hidden_elements(),
                         {Call::keep_rows, share_sizes(writer), {reads(whole), writes(share)}});
}

/// The gradient of a sum over ranks is whole on each; what each made of it is summed again.
Slot backward_of_shares(StowageWriter& writer, const LinearWeights& linear, CallOperand gradient,
                        const std::function<CallOperand()>& input) {
    ScriptBuilder& script = writer.script;
    const CallOperand share = input();
    const Slot whole = whole_tensor(writer, linear.name + ".regathered");
    script.allocate(whole);
    collective(writer, linear.name + ".regather", CollectiveKind::all_gather, false);
    const Slot partial = writer.input_gradient(linear, gradient);
    script.join_collectives();
    repeat_rows(writer, linear.name + ".regathered_rows", share, whole);
    const Slot result = writer.make(linear.name + ".input_gradient_share", writer.dim.hidden_shape());
    collective(writer, linear.name + ".dgrad_scatter", CollectiveKind::reduce_scatter, false);
    writer.weight_gradient(linear, gradient, reads(whole));
    script.drop(whole);
    script.join_collectives();
    keep_rows(writer, linear.name + ".dgrad_rows", partial, result);
    script.drop(partial);
    return result;
}

}  // namespace

WholeRows whole_rows(StowageWriter& writer, const std::string& name, CallOperand share) {
    if (!writer.dim.sequence_parallel) return {share, {}};
    const Slot whole = whole_tensor(writer, name + ".gathered");
    writer.script.allocate(whole);
    collective(writer, name + ".gather", CollectiveKind::all_gather, true);
    repeat_rows(writer, name + ".gathered_rows", share, whole);
    return {reads(whole), whole};
}

void drop_whole_rows(StowageWriter& writer, const WholeRows& whole) {
    if (whole.made) writer.script.drop(*whole.made);
}

Slot summands(StowageWriter& writer, const std::string& name, Slot output) {
    return writer.dim.sequence_parallel ? whole_tensor(writer, name + ".summands") : output;
}

void sum_over_ranks(StowageWriter& writer, const std::string& name, Slot whole, Slot output) {
    if (!writer.dim.sequence_parallel) return collective(writer, name + ".reduce", CollectiveKind::all_reduce, true);
    writer.script.allocate(output);
    collective(writer, name + ".scatter", CollectiveKind::reduce_scatter, true);
    keep_rows(writer, name + ".scattered_rows", whole, output);
    writer.script.drop(whole);
}

void split_columns_forward(StowageWriter& writer, const LinearWeights& linear, CallOperand input, Slot output) {
    const WholeRows whole = whole_rows(writer, linear.name, input);
    writer.run_linear(linear, whole.rows, output);
    drop_whole_rows(writer, whole);
}

Slot split_columns_backward(StowageWriter& writer, const LinearWeights& linear, CallOperand gradient,
                            const std::function<CallOperand()>& input) {
    if (writer.dim.sequence_parallel) return backward_of_shares(writer, linear, gradient, input);
    const Slot result = writer.input_gradient(linear, gradient);
    collective(writer, linear.name + ".dgrad_reduce", CollectiveKind::all_reduce, false);
    writer.weight_gradient(linear, gradient, input());
    if (writer.dim.tensor > 1) writer.script.join_collectives();
    return result;
}

void split_depth_forward(StowageWriter& writer, const LinearWeights& linear, CallOperand input, Slot output,
                         CallOperand residual) {
    if (writer.dim.tensor == 1) return writer.run_linear(linear, input, output, residual);
    const Slot whole = summands(writer, linear.name, output);
    writer.run_linear(linear, input, whole);
    sum_over_ranks(writer, linear.name, whole, output);
    writer.memory_kernel(linear.name + ".add_residual", 3 * 2 * writer.dim.hidden_elements(),
                         {Call::add, writer.local_rows_and_columns(writer.dim.hidden), {updates(output), residual}});
}

}  // namespace stowage::layers
