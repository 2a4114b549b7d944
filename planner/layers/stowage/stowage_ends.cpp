#include "planner/layers/stowage/norm_saves.hpp"
#include "planner/layers/stowage/stowage_scripts.hpp"
#include "planner/layers/stowage/tensor_shards.hpp"
#include "planner/layers/stowage/token_loss.hpp"

namespace stowage::layers {
namespace {

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
        : writer_(writer), norm_(writer.norm("final_norm")), norm_saves_(writer, norm_, false), loss_(writer) {}

    void forward() {
        ScriptBuilder& script = writer_.script;
        script.begin_forward(Part::final_norm);
        norm_saves_.forward(kInput, std::nullopt);
        norm_saves_.save_output(std::nullopt);
        loss_.forward(reads(norm_.output));
        script.drop(norm_.output);
        script.drop(kInput);
    }

    void backward() {
        ScriptBuilder& script = writer_.script;
        script.begin_backward(Part::loss);
        const Slot normed_gradient = loss_.backward([this] { return norm_saves_.output(); });
        norm_saves_.forget_output();
        script.part(Part::final_norm);
        norm_saves_.backward({normed_gradient, std::nullopt, kGradInput});
        script.drop(normed_gradient);
    }

private:
    StowageWriter& writer_;
    StowageNorm norm_;
    NormSaves norm_saves_;
    TokenLoss loss_;
};

/// The input holds normed rows: the model's, and behind them the prediction's.
LayerScript head_of_predictions(const Dimensions& dimensions, const types::Scenario& scenario) {
    const std::int64_t depths = 1 + scenario.model.mtp_num_layers;
    Dimensions all = dimensions;
    for (std::int64_t* size : {&all.sequence, &all.tokens, &all.local_tokens}) *size *= depths;
    ScriptBuilder script(ScriptKind::head, "head");
    StowageWriter writer(script, all, scenario);
    script.boundary(all.hidden_shape(), {0}, DataType::bf16);
    TokenLoss loss(writer, depths);
    script.begin_forward(Part::output_layer);
    loss.forward(reads(kInput));
    script.part(Part::output_layer);
    const SavedIndex input = script.save(kInput);
    script.drop(kInput);

    script.begin_backward(Part::loss);
    script.read(input);
    loss.backward(script.operand(input), kGradInput);
    script.forget(input);
    return script.build();
}

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
    load_tokens(writer, "embedding.load_tokens", tokens, token_sizes(writer));
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
    if (scenario.model.mtp_num_layers > 0) return head_of_predictions(dimensions, scenario);
    ScriptBuilder script(ScriptKind::head, "head");
    StowageWriter writer(script, dimensions, scenario);
    script.boundary(dimensions.hidden_shape(), {0}, DataType::bf16);
    TokenHead head(writer);
    head.forward();
    head.backward();
    return script.build();
}

}  // namespace stowage::layers
