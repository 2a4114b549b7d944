#pragma once

// The feed-forward part with experts: norm, shared expert, router, projection to the latent width, dispatch, experts,
// combine, projection back, and the sum with the shared expert's output.
//
//     normed -+-> router -> dispatch -> experts -> combine -+-> output
//             |        (latent width between two replicated linears, if there is one)
//             +-> shared expert ---------------------------+
//
// In the backward the routed path comes first: the shared expert ran before the router. Overlapped it runs beside the
// all-to-alls, both ways.
//
// Saved: the norm's input and statistics (group mlp_norm); its output, by the router and the shared expert; and what
// router.hpp, moe_dispatch.hpp, moe_experts.hpp, shared_expert.hpp and the two latent linears say.
//
// Recomputed (selective):
//   layernorm        the norm's output is dropped after the forward of this part and made again, statistics included,
//                    before its backward; only its input stays, in the group
//   moe              a checkpoint around everything after the norm: its input, the normed tokens, stays; the whole
//                    forward with all its collectives and the host's wait runs again before the backward, and nothing
//                    is in a group
//   shared_experts   the same around the shared expert alone
//   moe_act          see moe_experts.hpp
// Source: Megatron-LM, core/transformer/moe/moe_layer.py, core/transformer/transformer_layer.py.

#include <optional>

#include "planner/layers/moe_dispatch.hpp"
#include "planner/layers/moe_experts.hpp"
#include "planner/layers/moe_latent.hpp"
#include "planner/layers/norm.hpp"
#include "planner/layers/router.hpp"
#include "planner/layers/shared_expert.hpp"

namespace stowage::layers {

/// The shared expert, or the checkpoint around it.
struct SharedPath {
    SharedExpert expert;
    std::optional<SavedIndex> checkpoint;
};

/// Everything after the norm.
struct MoeBody {
    std::optional<SharedPath> shared;
    Router router;
    std::optional<Linear> to_latent;
    Dispatch dispatch;
    Experts experts;
    Combine combine;
    std::optional<Linear> from_latent;
    Slot output{};
};

struct Moe {
    SavedIndex norm_input{};        ///< in force when the norm is recomputed
    std::optional<SavedNorm> norm;  ///< otherwise
    std::optional<SavedIndex> checkpoint;
    MoeBody body;
    Slot input{};
    Slot normed{};
    Slot output{};  ///< [Ts, h], left to the caller
};

/// Opens the group mlp_norm and leaves it open: it closes after the residual sum.
Moe moe_forward(Writer& writer, Slot input);
/// Allocates and fills `grad_input` [Ts, h]; the gradient of the output is not dropped.
void moe_backward(Writer& writer, const Moe& moe, Slot grad_input);
void moe_parameters(Writer& writer);

}  // namespace stowage::layers
