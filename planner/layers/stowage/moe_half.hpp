#pragma once

// The feed-forward half of stowage's layer with experts.
//
//     input -> norm -+-> router -> places -> permuted rows -> [exchange] -> experts -> [exchange] -+-> sum -> output
//                    +-> shared expert + input ------------------------------------ or input ------+
//
// The sum over a token's experts adds the residual, or the shared expert's output that has it already. Shapes do not
// depend on the routing (dimensions.hpp, expert_tokens); counts go to the host all the same, which waits for them as
// Megatron's does and compares them with the plan. Experts padded to a capacity need no counts.
//
// Saved: the half's input in the group mlp_norm; outside of groups the norm's output and statistics, the router's
// logits, and where each choice went (twice, int32: the place of a choice and the choice at a place); and what
// grouped_experts.hpp and shared_mlp.hpp say. Recomputation: `layernorm`, `shared_experts`; `moe_act` changes nothing.
// `moe` saves the half's input alone: the backward begins with norm, router, exchange and fc1, which leave what would
// have been saved. Their groups are none then, and no graph ends inside; counts are compared in the forward alone.
//
// Tested by: tests/planner/layers/stowage_moe_test.cpp, tests/planner/program/stowage_moe_programs_test.cpp.

#include "planner/layers/stowage/grouped_experts.hpp"
#include "planner/layers/stowage/norm_saves.hpp"
#include "planner/layers/stowage/shared_mlp.hpp"
#include "planner/layers/stowage/token_router.hpp"

namespace stowage::layers {

class MoeHalf {
public:
    /// Declares parameters and tensors. Keeps a reference to the writer.
    explicit MoeHalf(StowageWriter& writer);

    /// `input` -> kOutput. `input` is not dropped.
    void forward(Slot input);
    /// kGradOutput -> `grad_input`, allocated. Drops kGradOutput.
    void backward(Slot grad_input);

private:
    /// Which run of a forward: there are two where `moe` is recomputed.
    enum class Run : std::uint8_t { first, again };
    [[nodiscard]] CallSizes route_sizes() const;
    ExpertRows dispatch(Slot weights, Run run);
    void find_places(Run run);
    void norm_again();
    void forward_again();
    /// Returns the gradient of the norm's output.
    Slot body_backward();
    void combine(Slot rows, Slot addend);
    Slot combine_backward();
    /// Gradients of the normed tokens and of the weights.
    ExpertRows dispatch_backward(const ExpertRows& rows);
    void add_to(Slot sum, Slot other);
    /// Returns the gradient of the norm's output.
    Slot normed_gradient(const ExpertRows& routed);

    StowageWriter& writer_;
    bool again_;
    StowageNorm norm_;
    NormSaves norm_saves_;
    TokenRouter router_;
    GroupedExperts experts_;
    std::optional<SharedMlp> shared_;
    Slot places_{};
    Slot sources_{};
    SavedIndex saved_places_{};
    SavedIndex saved_sources_{};
};

}  // namespace stowage::layers
