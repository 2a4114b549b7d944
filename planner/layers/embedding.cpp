#include "planner/layers/embedding.hpp"

#include <optional>

namespace stowage::layers {
namespace {

bool learned_positions(const Writer& writer) {
    return writer.model.position_embedding_type == types::PositionEmbedding::learned_absolute;
}

Shape batch_shape(const Dimensions& dim) { return {dim.micro_batch, dim.sequence}; }
Shape batch_first_shape(const Dimensions& dim) { return {dim.micro_batch, dim.sequence, dim.hidden}; }
std::int64_t full_bytes(const Dimensions& dim) { return 2 * dim.tokens * dim.hidden; }

/// The tensors between the lookup and the layer's output, one at a time; the last one is `output`.
class Chain {
public:
    Chain(Writer& writer, Slot first, Slot output) : writer_(writer), output_(output), current_(first) {}
    Slot next(const std::string& name, Shape shape, bool last) {
        const Slot slot = last ? output_ : writer_.script.tensor(name, std::move(shape));
        writer_.script.allocate(slot);
        previous_ = current_;
        current_ = slot;
        return slot;
    }
    void drop_previous() { writer_.script.drop(previous_); }

private:
    Writer& writer_;
    Slot output_{};
    Slot current_{};
    Slot previous_{};
};

/// What follows the lookup, in order; the last step writes the layer's output.
struct Steps {
    bool scatter_sum = false;  ///< reduce-scatter of the tensor-parallel partial sums
    bool positions = false;
    bool transpose = false;     ///< [b, s, h] -> [s, b, h]; with b = 1 it is a view
    bool scatter_copy = false;  ///< this rank's part of the sequence, when positions kept the sum whole
    bool dropout = false;
    [[nodiscard]] int count() const { return scatter_sum + positions + transpose + scatter_copy + dropout; }
};

Steps steps_of(const Writer& writer) {
    const Dimensions& dim = writer.dim;
    Steps steps;
    steps.positions = learned_positions(writer);
    steps.scatter_sum = dim.sequence_parallel && !steps.positions;
    steps.scatter_copy = dim.sequence_parallel && steps.positions;
    steps.transpose = dim.micro_batch > 1;
    steps.dropout = writer.model.hidden_dropout > 0;
    return steps;
}

void add_positions(Writer& writer, Chain& chain, EmbeddingLookup& saved, bool last) {
    const Dimensions& dim = writer.dim;
    const Slot ids = writer.make("position_ids", batch_shape(dim), DataType::int64);
    const Slot positions = writer.make("position_embedding", batch_first_shape(dim));
    writer.memory_kernel("embedding.positions", 2 * full_bytes(dim));
    saved.positions = writer.script.save(ids);
    writer.script.drop(ids);
    chain.next("embedding.sum", batch_first_shape(dim), last);
    writer.memory_kernel("embedding.add_positions", 3 * full_bytes(dim));
    chain.drop_previous();
    writer.script.drop(positions);
}

void apply_dropout(Writer& writer, Chain& chain, EmbeddingLookup& saved) {
    chain.next("embedding.dropped", writer.dim.hidden_shape(), true);
    const Slot mask = writer.make("embedding.dropout_mask", writer.dim.hidden_shape(), DataType::boolean);
    saved.mask = writer.script.save(mask);
    writer.script.drop(mask);
    writer.memory_kernel("embedding.dropout", 5 * writer.dim.hidden_elements());
    chain.drop_previous();
}

void after_lookup(Writer& writer, Chain& chain, const Steps& steps, EmbeddingLookup& saved) {
    const Dimensions& dim = writer.dim;
    int left = steps.count();
    if (dim.tensor > 1 && !steps.scatter_sum)
        writer.tensor_collective("embedding.reduce", CollectiveKind::all_reduce, dim.tokens * dim.hidden);
    if (steps.positions) add_positions(writer, chain, saved, --left == 0);
    if (steps.transpose) {
        chain.next("embedding.transposed", dim.full_shape(dim.hidden), --left == 0);
        writer.memory_kernel("embedding.transpose", 2 * full_bytes(dim));
        chain.drop_previous();
    }
    if (steps.scatter_sum) {
        chain.next("embedding.scattered", dim.hidden_shape(), --left == 0);
        writer.tensor_collective("embedding.scatter", CollectiveKind::reduce_scatter, dim.tokens * dim.hidden);
        chain.drop_previous();
    }
    if (steps.scatter_copy) {
        chain.next("embedding.part", dim.hidden_shape(), --left == 0);
        writer.memory_kernel("embedding.take_part", 4 * dim.hidden_elements());
        chain.drop_previous();
    }
    if (steps.dropout) apply_dropout(writer, chain, saved);
}

/// The gradient of the whole embedding output: dropout undone, gathered over the sequence. Drops `gradient`.
Slot whole_gradient(Writer& writer, const EmbeddingLookup& saved, Slot gradient) {
    const Dimensions& dim = writer.dim;
    if (saved.mask) {
        const Slot kept = writer.make("embedding.dropout_gradient", dim.hidden_shape());
        writer.script.read(*saved.mask);
        writer.memory_kernel("embedding.dropout_backward", 5 * dim.hidden_elements());
        writer.script.forget(*saved.mask);
        writer.script.drop(gradient);
        gradient = kept;
    }
    if (dim.sequence_parallel) {
        const Slot gathered = writer.make("embedding.gradient_gathered", dim.full_shape(dim.hidden));
        writer.tensor_collective("embedding.gather_gradient", CollectiveKind::all_gather, dim.tokens * dim.hidden);
        writer.script.drop(gradient);
        gradient = gathered;
    }
    return gradient;
}

void table_gradient(Writer& writer, const std::string& name, SavedIndex ids, std::int64_t rows) {
    const Dimensions& dim = writer.dim;
    const Slot gradient = writer.make(name + ".gradient", {rows, dim.hidden});
    writer.script.read(ids);
    writer.script.phase(Phase::weight_gradient);
    writer.memory_kernel(name + ".scatter_gradient", 2 * rows * dim.hidden + 2 * full_bytes(dim));
    writer.memory_kernel(name + ".accumulate", writer.accumulation_traffic(rows * dim.hidden));
    writer.script.phase(Phase::backward);
    writer.script.forget(ids);
    writer.script.drop(gradient);
}

}  // namespace

void embedding_parameters(Writer& writer, bool copy) {
    const Dimensions& dim = writer.dim;
    writer.script.parameter({"embedding.word_embeddings.weight",
                             {dim.vocabulary, dim.hidden},
                             ParameterKind::dense,
                             copy ? 0 : writer.model.vocab_size * dim.hidden});
    if (!learned_positions(writer)) return;
    const Shape positions{writer.model.max_position_embeddings, dim.hidden};
    writer.script.parameter({"embedding.position_embeddings.weight", positions, ParameterKind::dense,
                             copy ? 0 : positions[0] * positions[1]});
}

EmbeddingLookup embedding_forward(Writer& writer, Slot output) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Steps steps = steps_of(writer);
    EmbeddingLookup saved;
    const Slot tokens = writer.make("tokens", batch_shape(dim), DataType::int64);
    const Slot looked_up = steps.count() == 0 ? output : script.tensor("embedding.tokens", batch_first_shape(dim));
    script.allocate(looked_up);
    writer.memory_kernel("embedding.lookup", 2 * full_bytes(dim) + 8 * dim.tokens);
    saved.tokens = script.save(tokens);
    script.drop(tokens);
    Chain chain(writer, looked_up, output);
    after_lookup(writer, chain, steps, saved);
    return saved;
}

void embedding_backward(Writer& writer, const EmbeddingLookup& saved, Slot gradient) {
    const Slot whole = whole_gradient(writer, saved, gradient);
    if (saved.positions)
        table_gradient(writer, "embedding.position_embeddings", *saved.positions, writer.model.max_position_embeddings);
    table_gradient(writer, "embedding.word_embeddings", saved.tokens, writer.dim.vocabulary);
    writer.script.drop(whole);
}

LayerScript embedding_layer(const Dimensions& dimensions, const types::Scenario& scenario) {
    ScriptBuilder script(ScriptKind::embedding, "embedding");
    Writer writer(script, dimensions, scenario);
    script.boundary({0}, dimensions.hidden_shape(), DataType::bf16);
    embedding_parameters(writer, false);
    script.begin_forward(Part::embedding);
    const EmbeddingLookup saved = embedding_forward(writer, kOutput);
    script.begin_backward(Part::embedding);
    embedding_backward(writer, saved, kGradOutput);
    return script.build();
}

}  // namespace stowage::layers
