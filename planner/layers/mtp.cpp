#include "planner/layers/mtp.hpp"

#include <optional>
#include <string>

#include "planner/layers/embedding.hpp"
#include "planner/layers/linear.hpp"
#include "planner/layers/mtp_inner.hpp"
#include "planner/layers/norm.hpp"

namespace stowage::layers {
namespace {

constexpr const char* kFinalNorm = "final_norm";

std::string named(const char* part) { return std::string{kMtpPrefix} + part; }

Shape twice_as_wide(const Dimensions& dim) {
    return {dim.local_tokens / dim.micro_batch, dim.micro_batch, 2 * dim.hidden};
}

Shape twice_as_long(const Dimensions& dim) {
    Shape shape = dim.hidden_shape();
    shape[0] *= 2;
    return shape;
}

LinearSite projection_site(const Dimensions& dim) {
    LinearSite site;
    site.name = named("eh_proj");
    site.part = Part::mtp;
    site.width = dim.hidden / dim.tensor;
    site.other_width = 2 * dim.hidden;
    return site;
}

struct Normed {
    SavedNorm saved;
    Slot output{};
};

/// `input` is saved, not dropped.
Normed norm_forward(Writer& writer, const std::string& name, Slot input) {
    const Dimensions& dim = writer.dim;
    Normed norm;
    norm.output = writer.make(name + ".output", dim.hidden_shape());
    const NormStatistics statistics = run_norm(writer, name, dim.local_tokens, dim.hidden);
    norm.saved = save_norm(writer, name, dim.local_tokens, dim.hidden, input, statistics, std::nullopt);
    return norm;
}

/// What the forward leaves for the backward, besides the inner layer.
struct Mtp {
    Normed model;
    EmbeddingLookup lookup;
    SavedNorm embedding_norm;
    SavedNorm hidden_norm;
    Linear projection;
    SavedNorm final_norm;
};

/// The gathered output of the projection, whole; the part of this rank is a view of it.
void gather_projected(Writer& writer, Slot projected, Slot whole) {
    const Dimensions& dim = writer.dim;
    if (dim.tensor == 1) return;
    const Slot gathered = writer.make(named("eh_proj.gathered"), dim.full_shape(dim.hidden));
    writer.tensor_collective(named("eh_proj.gather"), CollectiveKind::all_gather, dim.tokens * dim.hidden);
    writer.script.allocate(whole);
    writer.memory_kernel(named("eh_proj.interleave"), 2 * 2 * dim.tokens * dim.hidden);
    writer.script.drop(gathered);
    writer.script.drop(projected);
}

/// `tokens_here`: the embedding of this stage brought the batch's tokens already.
void inputs_forward(Writer& writer, Mtp& mtp, bool tokens_here) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Shape ids{dim.micro_batch, dim.sequence};
    std::optional<Slot> batch;
    if (!tokens_here)
        batch = writer.make("mtp.tokens_and_positions", {2, dim.micro_batch, dim.sequence}, DataType::int64);
    mtp.model = norm_forward(writer, kFinalNorm, kInput);
    script.drop(kInput);
    script.part(Part::embedding);
    const Slot looked_up = script.tensor("mtp.embedding", dim.hidden_shape());
    mtp.lookup = embedding_forward(writer, looked_up);
    script.part(Part::mtp);
    const Normed embedding = norm_forward(writer, named("enorm"), looked_up);
    script.drop(looked_up);
    const Normed hidden = norm_forward(writer, named("hnorm"), mtp.model.output);
    mtp.embedding_norm = embedding.saved;
    mtp.hidden_norm = hidden.saved;
    const Slot wide = writer.make("mtp.side_by_side", twice_as_wide(dim));
    writer.memory_kernel("mtp.concatenate", 2 * 2 * 2 * dim.hidden_elements());
    mtp.projection = linear_forward(writer, projection_site(dim), wide);
    for (Slot slot : {embedding.output, hidden.output, wide}) script.drop(slot);
    if (batch) script.drop(*batch);
}

/// `gradient`: of the inner layer's input; dropped. `past`: the gradient of the model's normed hidden states lies in
/// its first half; dropped.
void inputs_backward(Writer& writer, const Mtp& mtp, Slot gradient, Slot past) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::mtp);
    if (dim.sequence_parallel) {
        const Slot whole = writer.make("mtp.gradient_gathered", dim.full_shape(dim.hidden));
        writer.tensor_collective("mtp.gather_gradient", CollectiveKind::all_gather, dim.tokens * dim.hidden);
        script.drop(gradient);
        gradient = whole;
    }
    if (dim.tensor > 1) {
        const Slot part = writer.make("mtp.gradient_part", dim.full_shape(dim.hidden / dim.tensor));
        writer.memory_kernel("mtp.take_part", 2 * 2 * dim.tokens * dim.hidden / dim.tensor);
        script.drop(gradient);
        gradient = part;
    }
    const Slot wide = linear_backward(writer, projection_site(dim), mtp.projection, gradient);
    // Halves of a row are no tensor that a norm takes: each is copied.
    const std::int64_t half_copy = 2 * 2 * dim.hidden_elements();
    const Slot hidden_half = writer.make("mtp.hidden_half", dim.hidden_shape());
    writer.memory_kernel("mtp.copy_hidden_half", half_copy);
    const Slot hidden_gradient = writer.make("mtp.hidden_gradient", dim.hidden_shape());
    norm_backward(writer, mtp.hidden_norm);
    script.drop(hidden_half);
    const Slot sum = writer.make("mtp.model_gradient", dim.hidden_shape());
    writer.memory_kernel("mtp.add_model_gradient", 3 * 2 * dim.hidden_elements());
    script.drop(hidden_gradient);
    script.drop(past);
    const Slot embedding_half = writer.make("mtp.embedding_half", dim.hidden_shape());
    writer.memory_kernel("mtp.copy_embedding_half", half_copy);
    script.drop(wide);
    const Slot embedding_gradient = writer.make("mtp.embedding_gradient", dim.hidden_shape());
    norm_backward(writer, mtp.embedding_norm);
    script.drop(embedding_half);
    script.part(Part::embedding);
    embedding_backward(writer, mtp.lookup, embedding_gradient);
    script.part(Part::final_norm);
    script.allocate(kGradInput);
    norm_backward(writer, mtp.model.saved);
    script.drop(sum);
}

void mtp_parameters(Writer& writer, bool own_table) {
    const Dimensions& dim = writer.dim;
    if (own_table) embedding_parameters(writer, true);
    writer.norm_parameters(kFinalNorm, dim.hidden);
    writer.norm_parameters(named("enorm"), dim.hidden);
    writer.norm_parameters(named("hnorm"), dim.hidden);
    linear_parameters(writer, projection_site(dim));
}

}  // namespace

std::vector<LayerTraits> mtp_traits(const types::Model& model) {
    if (model.mtp_mixers.empty()) return {traits_of(model, model.num_layers - 1)};
    std::vector<LayerTraits> layers;
    for (std::size_t i = 0; i < model.mtp_mixers.size(); ++i)
        layers.push_back({model.mtp_mixers[i], model.mtp_feed_forward[i], false});
    return layers;
}

LayerScript mtp_layer(const Dimensions& dimensions, const types::Scenario& scenario, bool own_table) {
    ScriptBuilder script(ScriptKind::mtp, "multi-token prediction");
    Writer writer(script, dimensions, scenario);
    script.boundary(dimensions.hidden_shape(), twice_as_long(dimensions), DataType::bf16);
    mtp_parameters(writer, own_table);
    std::vector<LayerScript> layers;
    for (const LayerTraits& traits : mtp_traits(scenario.model))
        layers.push_back(transformer_layer(dimensions, scenario, traits));

    Mtp mtp;
    script.begin_forward(Part::final_norm);
    inputs_forward(writer, mtp, !own_table);
    const bool gathered = dimensions.tensor > 1;
    InnerLayer::Ends ends;
    ends.input =
        gathered ? script.tensor("mtp.projected", dimensions.full_shape(dimensions.hidden)) : mtp.projection.output;
    ends.output = script.tensor("mtp.layer_output", dimensions.hidden_shape());
    ends.grad_output = script.tensor("mtp.layer_output_gradient", dimensions.hidden_shape());
    ends.grad_input = script.tensor("mtp.layer_input_gradient", dimensions.hidden_shape());
    gather_projected(writer, mtp.projection.output, ends.input);
    script.graph_ends(ends.input, ends.grad_output);
    InnerLayers inner(writer, layers, kMtpPrefix, ends);
    writer.norm_parameters(named("final_norm"), dimensions.hidden);
    inner.forward();
    script.part(Part::mtp);
    script.phase(Phase::forward);
    const Normed last = norm_forward(writer, named("final_norm"), ends.output);
    mtp.final_norm = last.saved;
    script.drop(ends.output);
    script.allocate(kOutput);
    writer.memory_kernel("mtp.append", 2 * 2 * 2 * dimensions.hidden_elements());
    script.drop(mtp.model.output);
    script.drop(last.output);

    script.begin_backward(Part::mtp);
    script.allocate(ends.grad_output);
    norm_backward(writer, mtp.final_norm);
    inner.backward();
    script.phase(Phase::backward);
    inputs_backward(writer, mtp, ends.grad_input, kGradOutput);
    return script.build();
}

}  // namespace stowage::layers
