#include "planner/layers/head.hpp"

#include "planner/layers/norm.hpp"

namespace stowage::layers {
namespace {

constexpr const char* kNormName = "final_norm";

struct Head {
    SavedNorm norm;
    SavedIndex normed{};
    SavedIndex softmax{};
    SavedIndex target_mask{};
    SavedIndex target{};
};

/// What get_batch brings besides the tokens; held until the stage's forward returns.
struct LabelBatch {
    Slot labels{};
    Slot loss_mask{};
    Slot attention_mask{};
};

std::int64_t logit_count(const Dimensions& dim) { return dim.tokens * dim.vocabulary; }
Shape logit_shape(const Dimensions& dim) { return dim.full_shape(dim.vocabulary); }
Shape token_shape(const Dimensions& dim) { return {dim.sequence, dim.micro_batch}; }

LabelBatch make_batch(Writer& writer) {
    const Dimensions& dim = writer.dim;
    LabelBatch batch;
    batch.labels = writer.make("labels", {dim.micro_batch, dim.sequence}, DataType::int64);
    batch.loss_mask = writer.make("loss_mask", {dim.micro_batch, dim.sequence}, DataType::fp32);
    batch.attention_mask =
        writer.make("attention_mask", {dim.micro_batch, 1, dim.sequence, dim.sequence}, DataType::boolean);
    return batch;
}

Slot final_norm_forward(Writer& writer, Head& head) {
    const Dimensions& dim = writer.dim;
    writer.script.part(Part::final_norm);
    const Slot normed = writer.make("final_norm.output", dim.hidden_shape());
    const NormStatistics statistics = run_norm(writer, kNormName, dim.local_tokens, dim.hidden);
    head.norm = save_norm(writer, kNormName, dim.local_tokens, dim.hidden, kInput, statistics, std::nullopt);
    return normed;
}

Slot output_layer_forward(Writer& writer, Slot normed, Head& head) {
    const Dimensions& dim = writer.dim;
    writer.script.part(Part::output_layer);
    if (dim.sequence_parallel)
        writer.tensor_collective("output_layer.gather", CollectiveKind::all_gather, dim.tokens * dim.hidden);
    const Slot logits = writer.make("output_layer.logits", logit_shape(dim));
    writer.gemm("output_layer.forward", dim.tokens, dim.vocabulary, dim.hidden);
    head.normed = writer.script.save(normed);
    return logits;
}

/// One fp32 number a token, reduced over the vocabulary's shards.
Slot token_reduction(Writer& writer, const std::string& name, std::int64_t passes) {
    const Dimensions& dim = writer.dim;
    const Slot slot = writer.make(name, token_shape(dim), DataType::fp32);
    writer.memory_kernel(name, passes * 4 * logit_count(dim));
    if (dim.tensor > 1)
        writer.collective(name + ".reduce", CollectiveKind::all_reduce, CommGroup::tensor, 4 * dim.tokens);
    return slot;
}

void cross_entropy_forward(Writer& writer, Slot logits, Head& head) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::loss);
    const Slot labels = writer.make("loss.labels", token_shape(dim), DataType::int64);
    const Slot softmax = writer.make("loss.softmax", logit_shape(dim), DataType::fp32);
    writer.memory_kernel("loss.cast", 6 * logit_count(dim));
    const Slot maximum = token_reduction(writer, "loss.maximum", 1);
    writer.memory_kernel("loss.subtract", 8 * logit_count(dim));
    const Slot mask = writer.make("loss.target_mask", token_shape(dim), DataType::boolean);
    const Slot target = writer.make("loss.target", {dim.tokens}, DataType::int64);
    const Slot predicted = token_reduction(writer, "loss.predicted", 0);
    const Slot sum = token_reduction(writer, "loss.exponential_sum", 3);
    const Slot loss = writer.make("loss.loss", token_shape(dim), DataType::fp32);
    writer.memory_kernel("loss.normalize", 8 * logit_count(dim));
    head.softmax = script.save(softmax);
    head.target_mask = script.save(mask);
    head.target = script.save(target);
    for (Slot slot : {softmax, mask, target, maximum, predicted, sum, labels}) script.drop(slot);
    script.drop(logits);
    script.drop(loss);
}

/// Gradient of the logits: in place on the softmax, then a bf16 copy beside it.
Slot cross_entropy_backward(Writer& writer, const Head& head) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::loss);
    for (SavedIndex saved : {head.softmax, head.target_mask, head.target}) script.read(saved);
    writer.memory_kernel("loss.gradient", 8 * logit_count(dim));
    const Slot gradient = writer.make("output_layer.logits_gradient", logit_shape(dim));
    writer.memory_kernel("loss.cast_backward", 6 * logit_count(dim));
    for (SavedIndex saved : {head.softmax, head.target_mask, head.target}) script.forget(saved);
    return gradient;
}

/// Gradient of the normed input; its collective runs beside the weight gradient.
Slot output_layer_backward(Writer& writer, const Head& head, Slot logits_gradient) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const std::int64_t elements = dim.tokens * dim.hidden;
    script.part(Part::output_layer);
    script.read(head.normed);
    if (dim.sequence_parallel)
        writer.tensor_collective("output_layer.regather", CollectiveKind::all_gather, elements, false);
    const Slot whole = writer.make("output_layer.dgrad", dim.full_shape(dim.hidden));
    writer.gemm("output_layer.dgrad", dim.tokens, dim.hidden, dim.vocabulary);
    Slot result = whole;
    if (dim.sequence_parallel) {
        script.join_collectives();
        result = writer.make("output_layer.dgrad_shard", dim.hidden_shape());
        writer.tensor_collective("output_layer.dgrad_scatter", CollectiveKind::reduce_scatter, elements, false);
    } else {
        writer.tensor_collective("output_layer.dgrad_reduce", CollectiveKind::all_reduce, elements, false);
    }
    writer.weight_gradient("output_layer.wgrad", dim.tokens, dim.vocabulary, dim.hidden);
    if (dim.tensor > 1) script.join_collectives();
    if (dim.sequence_parallel) script.drop(whole);
    script.forget(head.normed);
    script.drop(logits_gradient);
    return result;
}

void head_parameters(Writer& writer, OutputWeight weight) {
    const Dimensions& dim = writer.dim;
    writer.norm_parameters(kNormName, dim.hidden);
    if (weight == OutputWeight::shared) return;
    const std::int64_t counted = weight == OutputWeight::own ? writer.model.vocab_size * dim.hidden : 0;
    writer.script.parameter({"output_layer.weight", {dim.vocabulary, dim.hidden}, ParameterKind::dense, counted});
}

}  // namespace

OutputWeight output_weight(const types::Scenario& scenario) {
    if (scenario.model.untie_embeddings_and_output_weights) return OutputWeight::own;
    return scenario.parallel.pipeline_model_parallel_size > 1 ? OutputWeight::copy : OutputWeight::shared;
}

LayerScript head_layer(const Dimensions& dimensions, const types::Scenario& scenario, OutputWeight weight) {
    ScriptBuilder script(ScriptKind::head, "head");
    Writer writer(script, dimensions, scenario);
    script.boundary(dimensions.hidden_shape(), {0}, DataType::bf16);
    head_parameters(writer, weight);
    Head head;
    script.begin_forward(Part::final_norm);
    const LabelBatch batch = make_batch(writer);
    const Slot normed = final_norm_forward(writer, head);
    const Slot logits = output_layer_forward(writer, normed, head);
    script.drop(normed);
    cross_entropy_forward(writer, logits, head);
    for (Slot slot : {batch.labels, batch.loss_mask, batch.attention_mask}) script.drop(slot);
    script.drop(kInput);

    script.begin_backward(Part::loss);
    const Slot logits_gradient = cross_entropy_backward(writer, head);
    const Slot normed_gradient = output_layer_backward(writer, head, logits_gradient);
    script.part(Part::final_norm);
    script.allocate(kGradInput);
    norm_backward(writer, head.norm);
    script.drop(normed_gradient);
    return script.build();
}

}  // namespace stowage::layers
