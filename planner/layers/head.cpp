#include "planner/layers/head.hpp"

#include <string>

#include "planner/layers/norm.hpp"

namespace stowage::layers {
namespace {

constexpr const char* kNormName = "final_norm";

/// One pass through output layer and cross entropy: that of the model, or of multi-token prediction.
struct LossPass {
    std::string prefix;
    SavedIndex input{};
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
Shape batch_shape(const Dimensions& dim) { return {dim.micro_batch, dim.sequence}; }

LabelBatch make_batch(Writer& writer) {
    const Dimensions& dim = writer.dim;
    LabelBatch batch;
    batch.labels = writer.make("labels", batch_shape(dim), DataType::int64);
    batch.loss_mask = writer.make("loss_mask", batch_shape(dim), DataType::fp32);
    batch.attention_mask =
        writer.make("attention_mask", {dim.micro_batch, 1, dim.sequence, dim.full_sequence}, DataType::boolean);
    return batch;
}

struct FinalNorm {
    SavedNorm saved;
    Slot output{};
};

FinalNorm final_norm_forward(Writer& writer) {
    const Dimensions& dim = writer.dim;
    writer.script.part(Part::final_norm);
    FinalNorm norm;
    norm.output = writer.make("final_norm.output", dim.hidden_shape());
    const NormStatistics statistics = run_norm(writer, kNormName, dim.local_tokens, dim.hidden);
    norm.saved = save_norm(writer, kNormName, dim.local_tokens, dim.hidden, kInput, statistics, std::nullopt);
    return norm;
}

/// The logits of `input`, of which a view in the shape of a hidden state is saved.
Slot output_layer_forward(Writer& writer, Slot input, LossPass& pass) {
    const Dimensions& dim = writer.dim;
    const std::string name = pass.prefix + "output_layer";
    writer.script.part(Part::output_layer);
    if (dim.sequence_parallel)
        writer.tensor_collective(name + ".gather", CollectiveKind::all_gather, dim.tokens * dim.hidden);
    const Slot logits = writer.make(name + ".logits", logit_shape(dim));
    writer.gemm(name + ".forward", dim.tokens, dim.vocabulary, dim.hidden);
    pass.input =
        writer.script.save_view(name + ".input", input, std::nullopt, dim.hidden_shape(), CopyForm::contiguous);
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

/// The caller still holds the logits.
void cross_entropy_forward(Writer& writer, LossPass& pass) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const std::string name = pass.prefix + "loss";
    script.part(Part::loss);
    const Slot labels = writer.make(name + ".labels", token_shape(dim), DataType::int64);
    const Slot softmax = writer.make(name + ".softmax", logit_shape(dim), DataType::fp32);
    writer.memory_kernel(name + ".cast", 6 * logit_count(dim));
    const Slot maximum = token_reduction(writer, name + ".maximum", 1);
    writer.memory_kernel(name + ".subtract", 8 * logit_count(dim));
    const Slot mask = writer.make(name + ".target_mask", token_shape(dim), DataType::boolean);
    const Slot target = writer.make(name + ".target", {dim.tokens}, DataType::int64);
    const Slot predicted = token_reduction(writer, name + ".predicted", 0);
    const Slot sum = token_reduction(writer, name + ".exponential_sum", 3);
    const Slot loss = writer.make(name + ".loss", token_shape(dim), DataType::fp32);
    writer.memory_kernel(name + ".normalize", 8 * logit_count(dim));
    pass.softmax = script.save(softmax);
    pass.target_mask = script.save(mask);
    pass.target = script.save(target);
    for (Slot slot : {softmax, mask, target, maximum, predicted, sum, labels, loss}) script.drop(slot);
}

/// Gradient of the logits: in place on the softmax, then a bf16 copy beside it.
Slot cross_entropy_backward(Writer& writer, const LossPass& pass) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::loss);
    for (SavedIndex saved : {pass.softmax, pass.target_mask, pass.target}) script.read(saved);
    writer.memory_kernel(pass.prefix + "loss.gradient", 8 * logit_count(dim));
    const Slot gradient = writer.make(pass.prefix + "output_layer.logits_gradient", logit_shape(dim));
    writer.memory_kernel(pass.prefix + "loss.cast_backward", 6 * logit_count(dim));
    for (SavedIndex saved : {pass.softmax, pass.target_mask, pass.target}) script.forget(saved);
    return gradient;
}

/// Gradient of the normed input; its collective runs beside the weight gradient.
Slot output_layer_backward(Writer& writer, const LossPass& pass, Slot logits_gradient) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const std::string name = pass.prefix + "output_layer";
    const std::int64_t elements = dim.tokens * dim.hidden;
    script.part(Part::output_layer);
    script.read(pass.input);
    if (dim.sequence_parallel)
        writer.tensor_collective(name + ".regather", CollectiveKind::all_gather, elements, false);
    const Slot whole = writer.make(name + ".dgrad", dim.full_shape(dim.hidden));
    writer.gemm(name + ".dgrad", dim.tokens, dim.hidden, dim.vocabulary);
    Slot result = whole;
    if (dim.sequence_parallel) {
        script.join_collectives();
        result = writer.make(name + ".dgrad_shard", dim.hidden_shape());
        writer.tensor_collective(name + ".dgrad_scatter", CollectiveKind::reduce_scatter, elements, false);
    } else {
        writer.tensor_collective(name + ".dgrad_reduce", CollectiveKind::all_reduce, elements, false);
    }
    writer.weight_gradient(name + ".wgrad", dim.tokens, dim.vocabulary, dim.hidden);
    if (dim.tensor > 1) script.join_collectives();
    if (dim.sequence_parallel) script.drop(whole);
    script.forget(pass.input);
    script.drop(logits_gradient);
    return result;
}

Slot loss_pass_backward(Writer& writer, const LossPass& pass) {
    return output_layer_backward(writer, pass, cross_entropy_backward(writer, pass));
}

void output_parameters(Writer& writer, OutputWeight weight) {
    const Dimensions& dim = writer.dim;
    if (weight == OutputWeight::shared) return;
    const std::int64_t counted = weight == OutputWeight::own ? writer.model.vocab_size * dim.hidden : 0;
    writer.script.parameter({"output_layer.weight", {dim.vocabulary, dim.hidden}, ParameterKind::dense, counted});
}

void drop_batch(Writer& writer, const LabelBatch& batch) {
    for (Slot slot : {batch.labels, batch.loss_mask, batch.attention_mask}) writer.script.drop(slot);
}

/// How many tokens multi-token prediction would have had accepted: the most likely one of each position, over the
/// vocabulary's shards.
void count_accepted(Writer& writer) {
    const Dimensions& dim = writer.dim;
    writer.memory_kernel("mtp.loss.accepted", 2 * logit_count(dim));
    if (dim.tensor > 1)
        writer.collective("mtp.loss.gather_accepted", CollectiveKind::all_gather, CommGroup::tensor,
                          (2 + 8) * dim.tokens * dim.tensor);
}

/// Loss of the second half of the input, whose labels are those of the model one token on; its logits live on while
/// accepted tokens are counted.
void mtp_pass_forward(Writer& writer, LossPass& pass) {
    const Dimensions& dim = writer.dim;
    const Slot labels = writer.make("mtp.labels", batch_shape(dim), DataType::int64);
    const Slot loss_mask = writer.make("mtp.loss_mask", batch_shape(dim), DataType::fp32);
    const Slot logits = output_layer_forward(writer, kInput, pass);
    cross_entropy_forward(writer, pass);
    count_accepted(writer);
    for (Slot slot : {logits, labels, loss_mask}) writer.script.drop(slot);
}

LayerScript plain_head(const Dimensions& dimensions, const types::Scenario& scenario, OutputWeight weight) {
    ScriptBuilder script(ScriptKind::head, "head");
    Writer writer(script, dimensions, scenario);
    script.boundary(dimensions.hidden_shape(), {0}, DataType::bf16);
    writer.norm_parameters(kNormName, dimensions.hidden);
    output_parameters(writer, weight);
    LossPass pass;
    script.begin_forward(Part::final_norm);
    const LabelBatch batch = make_batch(writer);
    const FinalNorm norm = final_norm_forward(writer);
    const Slot logits = output_layer_forward(writer, norm.output, pass);
    script.drop(norm.output);
    cross_entropy_forward(writer, pass);
    script.drop(logits);
    drop_batch(writer, batch);
    script.drop(kInput);

    script.begin_backward(Part::loss);
    const Slot normed_gradient = loss_pass_backward(writer, pass);
    script.part(Part::final_norm);
    script.allocate(kGradInput);
    norm_backward(writer, norm.saved);
    script.drop(normed_gradient);
    return script.build();
}

/// Its input: the model's normed hidden states and behind them those of multi-token prediction.
LayerScript head_after_mtp(const Dimensions& dimensions, const types::Scenario& scenario, OutputWeight weight) {
    ScriptBuilder script(ScriptKind::head, "head");
    Writer writer(script, dimensions, scenario);
    Shape both = dimensions.hidden_shape();
    both[0] *= 2;
    script.boundary(both, {0}, DataType::bf16);
    output_parameters(writer, weight);
    LossPass pass;
    LossPass predicted{.prefix = "mtp."};
    script.begin_forward(Part::output_layer);
    const LabelBatch batch = make_batch(writer);
    mtp_pass_forward(writer, predicted);
    const Slot logits = output_layer_forward(writer, kInput, pass);
    cross_entropy_forward(writer, pass);
    script.drop(logits);
    drop_batch(writer, batch);
    script.drop(kInput);

    script.begin_backward(Part::loss);
    const Slot gradient = loss_pass_backward(writer, pass);
    const Slot predicted_gradient = loss_pass_backward(writer, predicted);
    script.allocate(kGradInput);
    writer.memory_kernel("mtp.join_gradients", 2 * 2 * 2 * dimensions.hidden_elements());
    script.drop(gradient);
    script.drop(predicted_gradient);
    return script.build();
}

}  // namespace

OutputWeight output_weight(const types::Scenario& scenario) {
    if (scenario.model.untie_embeddings_and_output_weights) return OutputWeight::own;
    return scenario.parallel.pipeline_model_parallel_size > 1 ? OutputWeight::copy : OutputWeight::shared;
}

LayerScript head_layer(const Dimensions& dimensions, const types::Scenario& scenario, OutputWeight weight) {
    return scenario.model.mtp_num_layers > 0 ? head_after_mtp(dimensions, scenario, weight)
                                             : plain_head(dimensions, scenario, weight);
}

}  // namespace stowage::layers
