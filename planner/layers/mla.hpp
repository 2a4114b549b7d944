#pragma once

// Multi-latent attention: query, key and value are projected up from small latents.
//
// Steps (Ts this rank's tokens outside tensor parallelism, T all of the microbatch; q, c the latents' ranks, n, p, v
// the sizes of a head without position, with position, and of the value; a this rank's heads):
//   norm of the input      a module of its own: the offload group attn_norm, open until the residual sum is done
//   q_down, kv_down        h -> q and h -> c + p on Ts tokens with whole weights on every tensor rank, no communication
//   rotary key             the p channels, gathered over the sequence under sequence parallelism
//   q_up, kv_up            q -> a (n + p) and c -> a (n + v), split by columns; with qk_layernorm the latents' norms
//   are
//                          fused into them. Without a query latent one linear h -> a (n + p) takes both steps' place
//   rotary embedding       with YaRN Megatron's fused kernels: the query in place, key and value written out of kv_up's
//                          output. They refuse plain rotary tables, so there the unfused path runs: it concatenates
//                          new queries and keys, copies the value, and saves the sines and cosines
//   attention, projection  head sizes n + p and v
// Both down projections save the normed input; their group qkv_linear holds it twice and releases it. The latent that
// kv_down makes is a slice of its output, copied before the norm, which wants dense rows.
//
// With `mla_up_proj` recomputation everything from the latents' norms to query, key and value is emptied once attention
// is done; latents and rotary key wait. It is made again with the first gradient of attention's output, before the
// backward of attention (and of its offload group: Megatron hangs it on the tensor behind the commit), and stays until
// the up projections' backward is through. Reads of latents that the group qkv_linear moved come that early too. When
// core_attn is offloaded as well, query, key and value are copied out and back as ever, beside what is made again.
// Source: Megatron-LM, core/transformer/multi_latent_attention.py, core/models/gpt/gpt_layer_specs.py,
// core/fusions/fused_mla_yarn_rope_apply.py.
//
// Tested by: tests/planner/layers/mla_test.cpp, recompute_test.cpp.

#include <optional>
#include <variant>
#include <vector>

#include "planner/layers/attention_core.hpp"
#include "planner/layers/linear.hpp"
#include "planner/layers/rebuilt.hpp"

namespace stowage::layers {

/// From latents to query, key and value.
struct UpProjection {
    std::variant<std::monostate, Linear, NormLinear> query;  ///< none before it ran
    std::variant<std::monostate, Linear, NormLinear> key_value;
    std::vector<SavedIndex> angles;  ///< sines and cosines of the unfused rotary embedding
    Heads heads;
};

struct LatentAttention {
    SeparateNorm norm;
    std::optional<Linear> query_down;
    Linear key_value_down;
    UpProjection up;
    std::vector<SavedIndex> waiting;  ///< mla_up_proj recomputation: latents and rotary key
    std::vector<Slot> latents;        ///< query latent (or none), key-value latent, rotary key: as `up` reads them
    CoreAttention core;
    RowLinear projection;
};

/// Opens the group attn_norm and leaves it open: it closes after the residual sum, with `latent_attention_commit`.
LatentAttention latent_attention_forward(Writer& writer, Slot input, bool windowed);
/// Allocates and fills `grad_input`; the gradient of the projection's output is not dropped. Expects the backward of
/// the group attn_norm to be open and closes it.
void latent_attention_backward(Writer& writer, LatentAttention& attention, Slot grad_input);
void latent_attention_parameters(Writer& writer);

}  // namespace stowage::layers
