#pragma once

// Output layer and cross entropy of normed rows in stowage's layers: those of the model's tokens, or with multi-token
// prediction those and behind them the prediction's, in one product and one loss.
//
// Saved: bf16 logits, labels, one fp32 number a row. The logits become their gradient in place. The loss of a
// microbatch is the mean over its tokens; to it the prediction's is added, times mtp_loss_scaling_factor. Labels are
// the next token of each place, of a predicted row the one after that; tokens go on behind a sequence's end, so that
// none is masked (Megatron's ends there).
//
// Tested by: tests/planner/layers/stowage_layers_test.cpp, stowage_mtp_test.cpp.

#include <functional>

#include "planner/layers/stowage/stowage_writer.hpp"

namespace stowage::layers {

/// Loads tokens of the model's vocabulary, or of this rank's share of it, as if others had none, into `tokens`;
/// `sizes` say how far on.
void load_tokens(StowageWriter& writer, const char* name, Slot tokens, CallSizes sizes);
/// Sizes of it, for the writer's rows.
CallSizes token_sizes(const StowageWriter& writer);
/// Of a call on the table of embeddings [vocabulary, h].
CallSizes table_sizes(const StowageWriter& writer);

class TokenLoss {
public:
    /// Declares the output layer's weight and tensors. `depths`: parts of the writer's rows. Keeps a reference to the
    /// writer.
    explicit TokenLoss(StowageWriter& writer, std::int64_t depths = 1);

    /// The variable of `normed` stays.
    void forward(CallOperand normed);
    /// Returns the gradient of the normed rows, allocated. `normed`: makes them ready and says where they are.
    Slot backward(const std::function<CallOperand()>& normed);
    /// The same into `gradient`, which it allocates; one tensor-parallel rank.
    void backward(CallOperand normed, Slot gradient);

private:
    void cross_entropy(Slot labels, Slot sums);
    void reduce_over_vocabulary();
    void logits_gradient();
    [[nodiscard]] CallSizes loss_sizes() const;

    StowageWriter& writer_;
    std::int64_t depths_;
    LinearWeights output_;
    Slot logits_{};
    SavedIndex saved_logits_{};
    SavedIndex saved_labels_{};
    SavedIndex saved_sums_{};
};

}  // namespace stowage::layers
