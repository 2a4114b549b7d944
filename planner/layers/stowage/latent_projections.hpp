#pragma once

// Multi-latent attention up to the packed tensor: projections down to a compressed query and to compressed keys and
// values, their norms, projections up to all heads, and the packing in which the rotary columns are turned.
//
// A packed row holds heads of head_size for queries, as many for keys, then values of value_head_size. The last
// rope_size columns of a query's head come from its projection, those of all keys from kv_down's last columns. Angles
// are those of plain rotary positions, whatever the model says of stretching them (YaRN): other angles cost the same.
// A model without a compressed query has one linear, q_proj.
//
// Saved: both compressed rows, before and behind their norms, and statistics. With `mla_up_proj` recomputed only the
// rows before the norms are (and a query that was not compressed): the rest runs again before attention's backward.
//
// Source: Megatron-LM, core/transformer/multi_latent_attention.py.
// Tested by: tests/planner/layers/stowage_latent_test.cpp.

#include <optional>

#include "planner/layers/stowage/norm_saves.hpp"

namespace stowage::layers {

class LatentProjections {
public:
    /// Declares parameters and tensors. Keeps a reference to the writer.
    explicit LatentProjections(StowageWriter& writer);

    /// Whether `mla_up_proj` is recomputed.
    [[nodiscard]] bool again() const { return again_; }
    /// [s, b, heads (2 head_size + value_head_size)]: allocated by `up` and `up_again`, dropped by whoever reads it.
    [[nodiscard]] Slot packed() const { return packed_; }

    /// From the normed input to compressed rows.
    void down(Slot normed);
    /// From compressed rows to the packed tensor. Saves in `group`; drops the compressed rows.
    void up(Module group);
    /// The same in the backward, where it is `again`, to the packed tensor alone.
    void up_again();

    /// Adds to the weight gradients of all that lies behind the compressed rows. Drops `packed_gradient`.
    void up_backward(Slot packed_gradient);
    /// Behind that: the gradient of the normed input.
    [[nodiscard]] Slot input_gradient();
    /// Behind that: adds to the weight gradients of the projections down.
    void down_weight_gradients(CallOperand normed);

private:
    /// One compressed row, its norm, and the projection that takes it to all heads.
    struct Latent {
        StowageNorm norm;
        NormSaves saves;
        LinearWeights up;
    };
    [[nodiscard]] static Latent declare_latent(StowageWriter& writer, const char* norm, const char* up,
                                               std::int64_t width, std::int64_t stride, std::int64_t columns);
    void latent_forward(Latent& latent, Slot input, Slot output, Module group);
    void latent_again(Latent& latent, Slot output);
    void latent_backward(Latent& latent, Slot gradient, Slot input_gradient);
    void pack(CallOperand query, CallOperand down);
    [[nodiscard]] CallSizes pack_sizes() const;
    [[nodiscard]] std::int64_t pack_traffic() const;

    StowageWriter& writer_;
    bool again_;
    std::int64_t rope_;
    LinearWeights query_down_;     ///< q_down, or q_proj
    std::optional<Latent> query_;  ///< none: q_proj
    LinearWeights key_value_down_;
    Latent key_value_;
    Slot query_latent_{};      ///< [s, b, q_lora_rank]
    Slot key_value_latent_{};  ///< [s, b, kv_lora_rank + rope_size]
    Slot all_queries_{};       ///< [s, b, heads head_size]
    Slot keys_and_values_{};   ///< [s, b, heads (head_size - rope_size + value_head_size)]
    Slot packed_{};
    std::optional<SavedIndex> saved_query_;  ///< q_proj's output, where packing runs again
    Slot query_gradient_{};                  ///< of q_down's or q_proj's output
    Slot key_value_gradient_{};              ///< of kv_down's output
};

}  // namespace stowage::layers
