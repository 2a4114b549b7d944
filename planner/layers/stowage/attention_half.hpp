#pragma once

// The attention half of stowage's layer: norm, qkv linear, rotary embedding, attention, output linear with the residual
// added in it.
//
// One packed tensor [s, b, (heads + 2 groups) size] carries query, key and value, in that order: rotated in place,
// read by attention, saved whole in the group core_attn. Attention's output is saved once, in the group attn_proj, and
// attention's backward reads it there. The half's input is saved in attn_norm. That group is committed behind the norm
// and empties nothing: the input lives until the residual has been added. So groups close in the order in which they
// open, and the backward wants them in the reverse order; nested ones would have the hooks of Megatron's manager wait
// for a group before it is fetched, that is, not at all.
//
// Norms of the heads (qk_layernorm) and the rotary turn are one kernel, which leaves the packed tensor as it was: that
// is what is saved, and the backward runs the kernel again before attention's.
//
// Recomputation: `layernorm` makes the norm's output again for the qkv linear's weight gradient and saves nothing of
// it: there is no group qkv_linear. `core_attn` runs attention again before its output is needed and saves neither
// output nor statistics: no group attn_proj, and core_attn holds the packed tensor alone.
//
// In FP8 the group qkv_linear holds an FP8 copy of the norm's output; attn_proj keeps attention's output in bf16, which
// attention's backward reads.
//
// Tested by: tests/planner/layers/stowage_layers_test.cpp.

#include <optional>

#include "planner/layers/stowage/layer_linear.hpp"
#include "planner/layers/stowage/norm_saves.hpp"

namespace stowage::layers {

/// Weights of the norms of query and key heads.
struct HeadNorms {
    ParameterIndex query{};
    ParameterIndex key{};
};

class AttentionHalf {
public:
    /// Declares parameters and tensors. Keeps a reference to the writer.
    explicit AttentionHalf(StowageWriter& writer);

    /// kInput -> `output`, allocated. Drops kInput.
    void forward(Slot output);
    /// `gradient` of the forward's output -> kGradInput. Drops `gradient`.
    void backward(Slot gradient);

private:
    void project_to_packed();
    void rotate(Call call, const char* name, Slot packed);
    /// The norms of the heads, and the rotary turn behind them: `packed` -> `turned_`, allocated.
    void norm_heads(CallOperand packed);
    void norm_heads_backward(Slot packed_gradient);
    [[nodiscard]] CallSizes head_norm_sizes() const;
    void run_attention(CallOperand packed);
    void attend();
    void project(Slot output);
    void attend_again();
    void norm_again();
    Slot projection_backward(Slot gradient);
    Slot attention_backward(Slot output_gradient);
    Slot packed_backward(Slot packed_gradient);
    [[nodiscard]] CallSizes attention_sizes() const;
    [[nodiscard]] AttentionWork attention_work() const;
    [[nodiscard]] std::int64_t attention_traffic() const;

    StowageWriter& writer_;
    bool attention_again_;
    StowageNorm norm_;
    NormSaves norm_saves_;
    LayerLinear qkv_;
    LayerLinear projection_;
    std::optional<HeadNorms> head_norms_;
    Slot packed_{};      ///< [s, b, (heads + 2 groups) size]
    Slot turned_{};      ///< with norms of the heads: what attention reads, of packed_'s shape
    Slot output_{};      ///< [s, b, heads size]
    Slot statistics_{};  ///< fp32 [b, heads, s]
    SavedIndex saved_packed_{};
    std::optional<SavedIndex> saved_statistics_;
    std::optional<SavedIndex> saved_output_;
};

}  // namespace stowage::layers
