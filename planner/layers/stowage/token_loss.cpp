#include "planner/layers/stowage/token_loss.hpp"

#include <algorithm>

#include "planner/layers/stowage/tensor_shards.hpp"

namespace stowage::layers {
namespace {

std::int64_t logit_count(const Dimensions& dim) { return dim.tokens * dim.vocabulary; }

LinearWeights output_weights(StowageWriter& writer) {
    const Dimensions& dim = writer.dim;
    const ParameterIndex weight =
        writer.parameter("output_layer.weight", {dim.vocabulary, dim.hidden}, writer.model.vocab_size * dim.hidden);
    return {"output_layer", dim.vocabulary, dim.hidden, weight, {}};
}

}  // namespace

void load_tokens(StowageWriter& writer, const char* name, Slot tokens, CallSizes sizes) {
    writer.memory_kernel(name, 4 * sizes.rows, {Call::load_tokens, sizes, {writes(tokens)}});
}

CallSizes token_sizes(const StowageWriter& writer) {
    return writer.rows_and_columns(std::min(writer.model.vocab_size, writer.dim.vocabulary));
}

CallSizes table_sizes(const StowageWriter& writer) {
    CallSizes sizes = writer.rows_and_columns(writer.dim.hidden);
    sizes.depth = writer.dim.vocabulary;
    return sizes;
}

TokenLoss::TokenLoss(StowageWriter& writer, std::int64_t depths)
    : writer_(writer),
      depths_(depths),
      output_(output_weights(writer)),
      logits_(writer.script.tensor("output_layer.logits", writer.dim.full_shape(writer.dim.vocabulary))) {}

CallSizes TokenLoss::loss_sizes() const {
    CallSizes sizes = writer_.rows_and_columns(writer_.dim.vocabulary);
    sizes.value = static_cast<double>(depths_) / static_cast<double>(writer_.dim.tokens);
    if (depths_ == 1) return sizes;
    sizes.depths = depths_;
    sizes.later_value = sizes.value * writer_.model.mtp_loss_scaling_factor / static_cast<double>(depths_ - 1);
    return sizes;
}

// ------------------------------------------------------------------------------------------------------------- forward

void TokenLoss::forward(CallOperand normed) {
    ScriptBuilder& script = writer_.script;
    script.part(Part::output_layer);
    split_columns_forward(writer_, output_, normed, logits_);
    script.part(Part::loss);
    const Slot labels = writer_.make("loss.labels", {writer_.dim.tokens}, DataType::int32);
    CallSizes next = token_sizes(writer_);
    next.shift = true;
    if (depths_ > 1) next.depths = depths_;
    load_tokens(writer_, "loss.load_labels", labels, next);
    const Slot sums = writer_.make("loss.log_sum", {writer_.dim.tokens}, DataType::fp32);
    cross_entropy(labels, sums);
    saved_logits_ = script.save(logits_);
    saved_labels_ = script.save(labels);
    saved_sums_ = script.save(sums);
    for (const Slot slot : {logits_, labels, sums}) script.drop(slot);
}

void TokenLoss::cross_entropy(Slot labels, Slot sums) {
    writer_.memory_kernel("loss.forward", 2 * logit_count(writer_.dim),
                          {Call::cross_entropy_forward,
                           loss_sizes(),
                           {reads(logits_), reads(labels), writes(sums), writes(StowageState::losses)}});
    reduce_over_vocabulary();
}

/// One number a token each: the largest logit, the label's, and the sum of exponentials.
void TokenLoss::reduce_over_vocabulary() {
    if (writer_.dim.tensor == 1) return;
    for (const char* name : {"loss.reduce_largest", "loss.reduce_label", "loss.reduce_sum"})
        writer_.script.collective(
            {name, CollectiveKind::all_reduce, CommGroup::tensor, Bytes{4 * writer_.dim.tokens}, true});
}

// ------------------------------------------------------------------------------------------------------------ backward

/// In place; labels and sums go.
void TokenLoss::logits_gradient() {
    ScriptBuilder& script = writer_.script;
    script.part(Part::loss);
    for (const SavedIndex saved : {saved_logits_, saved_labels_, saved_sums_}) script.read(saved);
    CallOperand logits = script.operand(saved_logits_);
    logits.access = Access::read_write;
    writer_.memory_kernel("loss.backward", 4 * logit_count(writer_.dim),
                          {Call::cross_entropy_backward,
                           loss_sizes(),
                           {logits, script.operand(saved_labels_), script.operand(saved_sums_)}});
    script.forget(saved_labels_);
    script.forget(saved_sums_);
    script.part(Part::output_layer);
}

Slot TokenLoss::backward(const std::function<CallOperand()>& normed) {
    logits_gradient();
    const Slot gradient = split_columns_backward(writer_, output_, writer_.script.operand(saved_logits_), normed);
    writer_.script.forget(saved_logits_);
    return gradient;
}

void TokenLoss::backward(CallOperand normed, Slot gradient) {
    logits_gradient();
    const CallOperand logits = writer_.script.operand(saved_logits_);
    writer_.script.allocate(gradient);
    writer_.input_gradient(output_, logits, gradient);
    writer_.weight_gradient(output_, logits, normed);
    writer_.script.forget(saved_logits_);
}

}  // namespace stowage::layers
