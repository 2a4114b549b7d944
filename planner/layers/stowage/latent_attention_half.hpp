#pragma once

// The attention half of a layer with multi-latent attention: norm, projections, attention, output linear with the
// residual added in it.
//
// Saved and offloaded as in AttentionHalf; the group qkv_linear also holds the compressed rows. Where `mla_up_proj` is
// recomputed, these are in core_attn instead, in the packed tensor's place: attention's backward begins with them, and
// a group must be complete before its first use. A group that would hold nothing is left out.
//
// Tested by: tests/planner/layers/stowage_latent_test.cpp.

#include <optional>

#include "planner/layers/stowage/latent_projections.hpp"

namespace stowage::layers {

class LatentAttentionHalf {
public:
    /// Declares parameters and tensors. Keeps a reference to the writer.
    explicit LatentAttentionHalf(StowageWriter& writer);

    /// kInput -> `output`, allocated. Drops kInput.
    void forward(Slot output);
    /// `gradient` of the forward's output -> kGradInput. Drops `gradient`.
    void backward(Slot gradient);

private:
    void project_to_packed();
    void attend();
    void project(Slot output);
    void run_attention(CallOperand packed);
    void begin_core_backward();
    Slot projection_backward(Slot gradient);
    Slot attention_backward(Slot output_gradient);
    Slot packed_backward(Slot packed_gradient);
    [[nodiscard]] bool has_linear_group() const { return !norm_saves_.again() || !projections_.again(); }
    [[nodiscard]] CallOperand packed_operand() const;
    [[nodiscard]] CallOperand statistics_operand() const;
    [[nodiscard]] CallOperand output_operand() const;
    [[nodiscard]] CallSizes attention_sizes() const;
    [[nodiscard]] AttentionWork attention_work() const;
    [[nodiscard]] std::int64_t attention_traffic() const;

    StowageWriter& writer_;
    bool attention_again_;
    StowageNorm norm_;
    NormSaves norm_saves_;
    LatentProjections projections_;
    LinearWeights projection_;
    Slot output_{};      ///< [s, b, heads value_head_size]
    Slot statistics_{};  ///< fp32 [b, heads, s]
    std::optional<SavedIndex> saved_packed_;
    std::optional<SavedIndex> saved_statistics_;
    std::optional<SavedIndex> saved_output_;
};

}  // namespace stowage::layers
