#pragma once

#include <optional>

#include "planner/layers/writer.hpp"

namespace stowage::layers {

/// What a lookup saved.
struct EmbeddingLookup {
    SavedIndex tokens{};
    std::optional<SavedIndex> positions;
    std::optional<SavedIndex> mask;
};

/// The tables; `copy`: of another stage's, which the model's total counts there.
void embedding_parameters(Writer& writer, bool copy);
/// Looks tokens up and fills `output` [local tokens, h], which it allocates. Under the current part.
EmbeddingLookup embedding_forward(Writer& writer, Slot output);
/// Adds to the tables' gradients and drops `gradient`.
void embedding_backward(Writer& writer, const EmbeddingLookup& saved, Slot gradient);

/// The first stage's beginning: token (and learned position) embedding, layout change to [s, b, h], dropout.
/// Tokens and positions are made here (the batch); autograd keeps what the lookups' backward indexes with. With tensor
/// parallelism each rank looks up its share of the vocabulary and the sum is all-reduced, or reduce-scattered over the
/// sequence. The backward makes a whole bf16 weight gradient and adds it to the main gradient: lookups are not fused
/// with the accumulation as linears are.
/// Not here: the attention mask of the batch, which on a first stage that is not the last lives through its forward.
LayerScript embedding_layer(const Dimensions& dimensions, const types::Scenario& scenario);

}  // namespace stowage::layers
