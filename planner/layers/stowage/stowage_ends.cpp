#include <algorithm>

#include "planner/layers/stowage/norm_saves.hpp"
#include "planner/layers/stowage/stowage_scripts.hpp"
#include "planner/layers/stowage/tensor_shards.hpp"

namespace stowage::layers {
namespace {

std::int64_t logit_count(const Dimensions& dim) { return dim.tokens * dim.vocabulary; }

/// Tokens of the model's vocabulary, or of this rank's share of it, as if others had none; `labels`: the next one of
/// each place.
void load_tokens(StowageWriter& writer, const char* name, Slot tokens, bool labels) {
    CallSizes sizes = writer.rows_and_columns(std::min(writer.model.vocab_size, writer.dim.vocabulary));
    sizes.shift = labels;
    writer.memory_kernel(name, 4 * writer.dim.tokens, {Call::load_tokens, sizes, {writes(tokens)}});
}

/// The table [depth, columns].
CallSizes table_sizes(const StowageWriter& writer) {
    CallSizes sizes = writer.rows_and_columns(writer.dim.hidden);
    sizes.depth = writer.dim.vocabulary;
    return sizes;
}

LayerScript hidden_source(const Dimensions& dimensions, const types::Scenario& scenario) {
    ScriptBuilder script(ScriptKind::embedding, "input");
    StowageWriter writer(script, dimensions, scenario);
    script.boundary({0}, dimensions.hidden_shape(), DataType::bf16);
    script.begin_forward(Part::embedding);
    script.allocate(kOutput);
    writer.memory_kernel("input.load", 2 * dimensions.hidden_elements(),
                         {Call::load_hidden, writer.local_rows_and_columns(dimensions.hidden), {writes(kOutput)}});
    script.begin_backward(Part::embedding);
    script.drop(kGradOutput);
    return script.build();
}

// ---------------------------------------------------------------------------------------------------- mean of squares

LayerScript square_head(const Dimensions& dimensions, const types::Scenario& scenario) {
    ScriptBuilder script(ScriptKind::head, "head");
    StowageWriter writer(script, dimensions, scenario);
    script.boundary(dimensions.hidden_shape(), {0}, DataType::bf16);
    const std::int64_t bytes = 2 * dimensions.hidden_elements();
    CallSizes sizes = writer.local_rows_and_columns(dimensions.hidden);
    sizes.value = 2 / static_cast<double>(dimensions.hidden_elements());
    script.begin_forward(Part::loss);
    CallSizes sums = sizes;
    sums.workspace_bytes = 4 * norm_partials(dimensions.local_tokens);
    const Slot workspace = writer.make("loss.partial_sums", {norm_partials(dimensions.local_tokens)}, DataType::fp32);
    writer.memory_kernel(
        "loss.forward", bytes,
        {Call::mean_square_forward, sums, {reads(kInput), writes(StowageState::losses), writes(workspace)}});
    script.drop(workspace);
    const SavedIndex input = script.save(kInput);
    script.drop(kInput);

    script.begin_backward(Part::loss);
    script.allocate(kGradInput);
    script.read(input);
    writer.memory_kernel("loss.backward", 2 * bytes,
                         {Call::mean_square_backward, sizes, {script.operand(input), writes(kGradInput)}});
    script.forget(input);
    return script.build();
}

// ------------------------------------------------------------------------------------------------------ cross entropy

/// Norm, output layer and loss of one microbatch.
class TokenHead {
public:
    explicit TokenHead(StowageWriter& writer)
        : writer_(writer),
          norm_(writer.norm("final_norm")),
          norm_saves_(writer, norm_, false),
          output_(output_weights(writer)),
          logits_(writer.script.tensor("output_layer.logits", writer.dim.full_shape(writer.dim.vocabulary))) {}

    void forward() {
        ScriptBuilder& script = writer_.script;
        script.begin_forward(Part::final_norm);
        norm_saves_.forward(kInput, std::nullopt);
        norm_saves_.save_output(std::nullopt);
        script.part(Part::output_layer);
        split_columns_forward(writer_, output_, reads(norm_.output), logits_);
        script.drop(norm_.output);
        loss_forward();
        script.drop(kInput);
    }

    void backward() {
        ScriptBuilder& script = writer_.script;
        script.begin_backward(Part::loss);
        loss_backward();
        script.part(Part::output_layer);
        const Slot normed_gradient = split_columns_backward(writer_, output_, script.operand(saved_logits_),
                                                            [this] { return norm_saves_.output(); });
        norm_saves_.forget_output();
        script.forget(saved_logits_);
        script.part(Part::final_norm);
        norm_saves_.backward({normed_gradient, std::nullopt, kGradInput});
        script.drop(normed_gradient);
    }

private:
    static LinearWeights output_weights(StowageWriter& writer) {
        const Dimensions& dim = writer.dim;
        const ParameterIndex weight =
            writer.parameter("output_layer.weight", {dim.vocabulary, dim.hidden}, writer.model.vocab_size * dim.hidden);
        return {"output_layer", dim.vocabulary, dim.hidden, weight, {}};
    }

    void loss_forward() {
        ScriptBuilder& script = writer_.script;
        const Dimensions& dim = writer_.dim;
        script.part(Part::loss);
        const Slot labels = writer_.make("loss.labels", {dim.tokens}, DataType::int32);
        load_tokens(writer_, "loss.load_labels", labels, true);
        const Slot sums = writer_.make("loss.log_sum", {dim.tokens}, DataType::fp32);
        writer_.memory_kernel("loss.forward", 2 * logit_count(dim),
                              {Call::cross_entropy_forward,
                               loss_sizes(),
                               {reads(logits_), reads(labels), writes(sums), writes(StowageState::losses)}});
        reduce_over_vocabulary();
        saved_logits_ = script.save(logits_);
        saved_labels_ = script.save(labels);
        saved_sums_ = script.save(sums);
        for (const Slot slot : {logits_, labels, sums}) script.drop(slot);
    }

    /// One number a token each: the largest logit, the label's, and the sum of exponentials.
    void reduce_over_vocabulary() {
        if (writer_.dim.tensor == 1) return;
        for (const char* name : {"loss.reduce_largest", "loss.reduce_label", "loss.reduce_sum"})
            writer_.script.collective(
                {name, CollectiveKind::all_reduce, CommGroup::tensor, Bytes{4 * writer_.dim.tokens}, true});
    }

    void loss_backward() {
        ScriptBuilder& script = writer_.script;
        for (const SavedIndex saved : {saved_logits_, saved_labels_, saved_sums_}) script.read(saved);
        CallOperand logits = script.operand(saved_logits_);
        logits.access = Access::read_write;
        writer_.memory_kernel("loss.backward", 4 * logit_count(writer_.dim),
                              {Call::cross_entropy_backward,
                               loss_sizes(),
                               {logits, script.operand(saved_labels_), script.operand(saved_sums_)}});
        script.forget(saved_labels_);
        script.forget(saved_sums_);
    }

    /// The loss of a microbatch is the mean over its tokens.
    [[nodiscard]] CallSizes loss_sizes() const {
        CallSizes sizes = writer_.rows_and_columns(writer_.dim.vocabulary);
        sizes.value = 1 / static_cast<double>(writer_.dim.tokens);
        return sizes;
    }

    StowageWriter& writer_;
    StowageNorm norm_;
    NormSaves norm_saves_;
    LinearWeights output_;
    Slot logits_{};
    SavedIndex saved_logits_{};
    SavedIndex saved_labels_{};
    SavedIndex saved_sums_{};
};

}  // namespace

LayerScript stowage_embedding(const Dimensions& dimensions, const types::Scenario& scenario) {
    if (is_bare_stack(scenario.model)) return hidden_source(dimensions, scenario);
    ScriptBuilder script(ScriptKind::embedding, "embedding");
    StowageWriter writer(script, dimensions, scenario);
    script.boundary({0}, dimensions.hidden_shape(), DataType::bf16);
    const ParameterIndex table =
        writer.parameter("embedding.word_embeddings.weight", {dimensions.vocabulary, dimensions.hidden},
                         writer.model.vocab_size * dimensions.hidden);
    const std::int64_t bytes = 2 * dimensions.tokens * dimensions.hidden;
    script.begin_forward(Part::embedding);
    const Slot tokens = writer.make("tokens", {dimensions.tokens}, DataType::int32);
    load_tokens(writer, "embedding.load_tokens", tokens, false);
    const Slot rows = summands(writer, "embedding", kOutput);
    script.allocate(rows);
    writer.memory_kernel("embedding.forward", 2 * bytes,
                         {Call::embedding_forward, table_sizes(writer), {reads(tokens), reads(table), writes(rows)}});
    sum_over_ranks(writer, "embedding", rows, kOutput);
    const SavedIndex saved = script.save(tokens);
    script.drop(tokens);

    script.begin_backward(Part::embedding);
    const WholeRows gradient = whole_rows(writer, "embedding.gradient", reads(kGradOutput));
    script.read(saved);
    script.phase(Phase::weight_gradient);
    writer.memory_kernel(
        "embedding.backward", bytes + writer.gradient_bytes() * bytes,
        {Call::embedding_backward, table_sizes(writer), {script.operand(saved), gradient.rows, adds_to(table)}});
    script.phase(Phase::backward);
    drop_whole_rows(writer, gradient);
    script.forget(saved);
    script.drop(kGradOutput);
    return script.build();
}

LayerScript stowage_head(const Dimensions& dimensions, const types::Scenario& scenario) {
    if (is_bare_stack(scenario.model)) return square_head(dimensions, scenario);
    ScriptBuilder script(ScriptKind::head, "head");
    StowageWriter writer(script, dimensions, scenario);
    script.boundary(dimensions.hidden_shape(), {0}, DataType::bf16);
    TokenHead head(writer);
    head.forward();
    head.backward();
    return script.build();
}

}  // namespace stowage::layers
