// Multi-token prediction in stowage's layers.
//
//     hidden states -> final norm -+-> hnorm -+
//     next tokens -> table -> enorm ----------+-> side by side -> eh_proj -> a layer -> norm -+
//                                  +----------------------------------------------------------+-> output [2 s, b, h]
//
// The model's final norm runs first, since the prediction takes normed hidden states. The layer inside is one as the
// model's last, groups and edges of graphs included. The head takes both halves of the output; the gradient of the
// first one waits until that of the second has come through the layer. Saved outside of the layer: the inputs of four
// norms with their statistics, the tokens, and the two tensors side by side. The table is the embedding's, and so is
// its gradient's place; a stage without embedding holds a copy.
//
// One tensor-parallel rank: eh_proj would be split and gathered.

#include "planner/layers/mtp.hpp"
#include "planner/layers/mtp_inner.hpp"
#include "planner/layers/stowage/norm_saves.hpp"
#include "planner/layers/stowage/stowage_scripts.hpp"
#include "planner/layers/stowage/token_loss.hpp"

namespace stowage::layers {
namespace {

std::string named(const char* part) { return std::string{kMtpPrefix} + part; }

ParameterIndex declare_table(StowageWriter& writer, bool own) {
    const Shape shape{writer.dim.vocabulary, writer.dim.hidden};
    const char* const name = "embedding.word_embeddings.weight";
    return own ? writer.parameter(name, shape, 0) : writer.shared_parameter(name, shape);
}

InnerLayer::Ends declare_ends(StowageWriter& writer) {
    const auto tensor = [&](const char* name) { return writer.script.tensor(name, writer.dim.hidden_shape()); };
    return {tensor("mtp.layer_input"), tensor("mtp.layer_output"), tensor("mtp.layer_output_gradient"),
            tensor("mtp.layer_input_gradient")};
}

/// A norm with what it keeps.
struct Norm {
    Norm(StowageWriter& writer, const std::string& name) : norm(writer.norm(name)), saves(writer, norm, false) {}
    StowageNorm norm;
    NormSaves saves;
};

class Prediction {
public:
    /// `layer` outlives this.
    Prediction(StowageWriter& writer, const LayerScript& layer, bool own_table)
        : writer_(writer),
          table_(declare_table(writer, own_table)),
          model_(writer, "final_norm"),
          embedding_(writer, named("enorm")),
          hidden_(writer, named("hnorm")),
          projection_(writer.linear(named("eh_proj"), writer.dim.hidden, 2 * writer.dim.hidden, false)),
          ends_(declare_ends(writer)),
          layer_(writer.script, layer, kMtpPrefix, ends_),
          last_(writer, named("final_norm")) {}

    void forward() {
        ScriptBuilder& script = writer_.script;
        script.begin_forward(Part::final_norm);
        model_.saves.forward(kInput, std::nullopt);
        script.drop(kInput);
        const Slot embedding = look_up();
        script.part(Part::mtp);
        project(embedding);
        script.graph_ends(ends_.input, ends_.grad_output);
        layer_.forward();
        script.part(Part::mtp);
        script.phase(Phase::forward);
        last_.saves.forward(ends_.output, std::nullopt);
        script.drop(ends_.output);
        script.allocate(kOutput);
        join("mtp.append", whole(), model_.norm.output, last_.norm.output, kOutput);
        script.drop(last_.norm.output);
    }

    void backward() {
        ScriptBuilder& script = writer_.script;
        script.begin_backward(Part::mtp);
        const Slot predicted = half_of_gradient("mtp.output_gradient", true);
        last_.saves.backward({predicted, std::nullopt, ends_.grad_output});
        script.drop(predicted);
        layer_.backward();
        script.phase(Phase::backward);
        script.part(Part::mtp);
        const auto [embedding, hidden] = split(projection_backward());
        const Slot past = half_of_gradient("mtp.model_output_gradient", false);
        script.drop(kGradOutput);
        const Slot model = script.tensor("mtp.model_gradient", writer_.dim.hidden_shape());
        hidden_.saves.backward({hidden, past, model});
        script.drop(hidden);
        script.drop(past);
        look_up_backward(embedding);
        script.part(Part::final_norm);
        model_.saves.backward({model, std::nullopt, kGradInput});
        script.drop(model);
    }

private:
    /// Of join_columns and split_columns on hidden states: row by row, or one tensor behind the other.
    [[nodiscard]] CallSizes rows() const { return writer_.local_rows_and_columns(writer_.dim.hidden); }
    [[nodiscard]] CallSizes whole() const {
        CallSizes sizes = writer_.local_rows_and_columns(writer_.dim.hidden_elements());
        sizes.rows = 1;
        return sizes;
    }

    void join(const char* name, const CallSizes& sizes, Slot first, Slot second, Slot both) {
        writer_.memory_kernel(name, 4 * 2 * writer_.dim.hidden_elements(),
                              {Call::join_columns, sizes, {reads(first), reads(second), writes(both)}});
    }

    /// The next tokens' rows of the table.
    Slot look_up() {
        ScriptBuilder& script = writer_.script;
        const Dimensions& dim = writer_.dim;
        script.part(Part::embedding);
        const Slot tokens = writer_.make("mtp.tokens", {dim.tokens}, DataType::int32);
        CallSizes next = token_sizes(writer_);
        next.shift = true;
        load_tokens(writer_, "mtp.load_tokens", tokens, next);
        const Slot found = writer_.make("mtp.embedding", dim.hidden_shape());
        writer_.memory_kernel(
            "mtp.embedding.forward", 2 * 2 * dim.hidden_elements(),
            {Call::embedding_forward, table_sizes(writer_), {reads(tokens), reads(table_), writes(found)}});
        tokens_ = script.save(tokens);
        script.drop(tokens);
        return found;
    }

    /// Drops `gradient`, of the norm's output.
    void look_up_backward(Slot gradient) {
        ScriptBuilder& script = writer_.script;
        const std::int64_t bytes = 2 * writer_.dim.hidden_elements();
        const Slot found = script.tensor("mtp.embedding_gradient", writer_.dim.hidden_shape());
        embedding_.saves.backward({gradient, std::nullopt, found});
        script.drop(gradient);
        script.part(Part::embedding);
        script.read(tokens_);
        script.phase(Phase::weight_gradient);
        writer_.memory_kernel(
            "mtp.embedding.backward", bytes + writer_.gradient_bytes() * bytes,
            {Call::embedding_backward, table_sizes(writer_), {script.operand(tokens_), reads(found), adds_to(table_)}});
        script.phase(Phase::backward);
        script.forget(tokens_);
        script.drop(found);
    }

    /// Makes the layer's input; drops `embedding`. The model's normed hidden states live on in what their norm saved of
    /// them: a variable would be one of those that a graph of the layer is given.
    void project(Slot embedding) {
        ScriptBuilder& script = writer_.script;
        embedding_.saves.forward(embedding, std::nullopt);
        script.drop(embedding);
        hidden_.saves.forward(model_.norm.output, std::nullopt);
        script.drop(model_.norm.output);
        const Slot side_by_side = writer_.make("mtp.side_by_side", writer_.dim.full_shape(2 * writer_.dim.hidden));
        join("mtp.concatenate", rows(), embedding_.norm.output, hidden_.norm.output, side_by_side);
        script.drop(embedding_.norm.output);
        script.drop(hidden_.norm.output);
        writer_.run_linear(projection_, reads(side_by_side), ends_.input);
        side_by_side_ = script.save(side_by_side);
        script.drop(side_by_side);
    }

    /// Returns the gradient of the two tensors side by side.
    Slot projection_backward() {
        ScriptBuilder& script = writer_.script;
        const Slot gradient = writer_.input_gradient(projection_, reads(ends_.grad_input));
        script.read(side_by_side_);
        writer_.weight_gradient(projection_, reads(ends_.grad_input), script.operand(side_by_side_));
        script.forget(side_by_side_);
        script.drop(ends_.grad_input);
        return gradient;
    }

    struct Halves {
        Slot embedding{};
        Slot hidden{};
    };
    /// Drops `both`.
    Halves split(Slot both) {
        const Shape shape = writer_.dim.hidden_shape();
        const Halves halves{writer_.make("mtp.enorm.output_gradient", shape),
                            writer_.make("mtp.hnorm.output_gradient", shape)};
        writer_.memory_kernel(
            "mtp.split", 4 * 2 * writer_.dim.hidden_elements(),
            {Call::split_columns, rows(), {reads(both), writes(halves.embedding), writes(halves.hidden)}});
        writer_.script.drop(both);
        return halves;
    }

    /// The first half of the output's gradient, or the second.
    Slot half_of_gradient(const char* name, bool second) {
        const Slot half = writer_.make(name, writer_.dim.hidden_shape());
        CallSizes sizes = rows();
        sizes.batch = 2;
        sizes.shift = second;
        writer_.memory_kernel(name, 2 * 2 * writer_.dim.hidden_elements(),
                              {Call::keep_rows, sizes, {reads(kGradOutput), writes(half)}});
        return half;
    }

    StowageWriter& writer_;
    ParameterIndex table_;
    Norm model_;
    Norm embedding_;
    Norm hidden_;
    LinearWeights projection_;
    InnerLayer::Ends ends_;
    InnerLayer layer_;
    Norm last_;
    SavedIndex tokens_{};
    SavedIndex side_by_side_{};
};

}  // namespace

LayerScript stowage_mtp(const Dimensions& dimensions, const types::Scenario& scenario, bool own_table) {
    ScriptBuilder script(ScriptKind::mtp, "multi-token prediction");
    StowageWriter writer(script, dimensions, scenario);
    Shape both = dimensions.hidden_shape();
    both[0] *= 2;
    script.boundary(dimensions.hidden_shape(), both, DataType::bf16);
    const types::Model& model = scenario.model;
    const LayerScript layer = model.is_moe_layer(model.num_layers - 1) ? stowage_moe_layer(dimensions, scenario)
                                                                       : stowage_layer(dimensions, scenario);
    Prediction prediction(writer, layer, own_table);
    prediction.forward();
    prediction.backward();
    return script.build();
}

}  // namespace stowage::layers
