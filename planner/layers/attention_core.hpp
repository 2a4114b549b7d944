#pragma once

// Attention itself, as Transformer Engine runs it on cuDNN's fused kernels, with the offload group core_attn.
//
// Saved: query, key, value, output and one fp32 number per row of scores. What is not contiguous is copied first,
// inside the group, and the copy is saved.
//
// Operations: with P pairs of positions that see each other, a heads, sizes k of query and key and v of the value,
// scores and context take 2 P a (k + v); the backward makes scores and their gradient (k, v), and the gradients of
// value (v), query and key (k each): 2 P a (3 k + 2 v). The causal mask leaves P = b s^2 / 2; a window of w tokens (its
// own included) P = b (w s - w^2 / 2). Windows change no saved byte.
//
// With `core_attn` recomputation a checkpoint surrounds the whole: it saves query, key and value as they come in
// (a value that is a view of the packed projection keeps the packed tensor), its forward saves nothing more, and its
// backward begins with the forward. There is no offload group then, for Megatron's checkpointed path opens none.
// Several context-parallel ranks: attention_context.hpp. Without fused kernels: attention_unfused.hpp.
// Source: Megatron-LM, core/transformer/attention.py; Transformer Engine, pytorch/attention/dot_product_attention.
//
// Tested by: tests/planner/layers/.

#include <optional>
#include <vector>

#include "planner/layers/writer.hpp"

namespace stowage::layers {

/// Query, key and value on their way into attention. No slot: a view of `packed`.
struct Heads {
    std::optional<Slot> packed;
    std::optional<Slot> query;
    std::optional<Slot> key;
    std::optional<Slot> value;
    bool views = false;    ///< all three are views of packed that cuDNN takes as they are
    bool rebuilt = false;  ///< they are emptied after attention and made again in the backward, at others' cost
};

struct CoreAttention {
    Heads heads;
    bool windowed = false;
    std::vector<SavedIndex> checkpoint;  ///< core_attn recomputation: what waits for the backward
    std::vector<SavedIndex> saved;       ///< query, key, value, output, softmax statistics
    Slot output{};
};

/// Gradients of the three; `packed` instead where cuDNN writes them as views of one buffer. No key: it lies in the
/// storage of `value`.
struct HeadGradients {
    std::optional<Slot> packed;
    Slot query{};
    std::optional<Slot> key;
    Slot value{};
};

Shape head_shape(const Dimensions& dim, std::int64_t heads, std::int64_t size);
/// Copies `heads` heads out of a tensor that holds them apart.
Slot copy_heads(Writer& writer, const std::string& name, std::int64_t heads, std::int64_t size);

/// Leaves the inputs and the output [tokens, heads, v] to the caller. Opens and closes the group.
CoreAttention core_attention_forward(Writer& writer, const Heads& heads, bool windowed);
/// Drops `gradient`, the output's. Opens and closes the group.
HeadGradients core_attention_backward(Writer& writer, const CoreAttention& attention, Slot gradient);
void core_attention_parameters(Writer& writer);

}  // namespace stowage::layers
