#include "planner/layers/kernel_call.hpp"

#include <array>

namespace stowage::layers {

std::string_view name_of(Call call) {
    static constexpr std::array<std::string_view, 54> kNames{"none",
                                                             "load_tokens",
                                                             "load_hidden",
                                                             "embedding_forward",
                                                             "embedding_backward",
                                                             "norm_forward",
                                                             "norm_backward",
                                                             "linear_forward",
                                                             "linear_input_gradient",
                                                             "linear_weight_gradient",
                                                             "bias_gradient",
                                                             "rotary_forward",
                                                             "rotary_backward",
                                                             "attention_forward",
                                                             "attention_backward",
                                                             "activation_forward",
                                                             "activation_backward",
                                                             "cross_entropy_forward",
                                                             "cross_entropy_backward",
                                                             "mean_square_forward",
                                                             "mean_square_backward",
                                                             "head_norm_forward",
                                                             "head_norm_backward",
                                                             "latent_pack_forward",
                                                             "latent_pack_backward",
                                                             "router_forward",
                                                             "router_backward",
                                                             "route_rows",
                                                             "counts_to_host",
                                                             "permute_forward",
                                                             "permute_backward",
                                                             "exchange_rows",
                                                             "unpermute_forward",
                                                             "unpermute_backward",
                                                             "weighted_activation_forward",
                                                             "weighted_activation_backward",
                                                             "grouped_linear_forward",
                                                             "grouped_linear_input_gradient",
                                                             "grouped_linear_weight_gradient",
                                                             "fp8_scale",
                                                             "fp8_quantize",
                                                             "fp8_linear_forward",
                                                             "fp8_linear_input_gradient",
                                                             "fp8_linear_weight_gradient",
                                                             "repeat_rows",
                                                             "keep_rows",
                                                             "join_columns",
                                                             "split_columns",
                                                             "add",
                                                             "gradient_norm",
                                                             "adam_update",
                                                             "clear",
                                                             "copy",
                                                             "stand_in"};
    return kNames[static_cast<std::size_t>(call)];
}

std::int64_t launches_of(const KernelCall& call) {
    const CallSizes& sizes = call.sizes;
    switch (call.call) {
        case Call::linear_forward:
        case Call::linear_input_gradient:
        case Call::linear_weight_gradient:
        case Call::fp8_linear_forward:
        case Call::fp8_linear_input_gradient:
        case Call::fp8_linear_weight_gradient:
        case Call::grouped_linear_forward:
        case Call::grouped_linear_input_gradient:
        case Call::grouped_linear_weight_gradient:
        case Call::attention_forward:
        case Call::norm_backward:
        case Call::bias_gradient:
        case Call::cross_entropy_forward:
        case Call::mean_square_forward:
        case Call::fp8_scale:
        case Call::gradient_norm: return 2;
        case Call::head_norm_backward: return 3;
        case Call::attention_backward: {
            const std::int64_t of_one_part = sizes.heads == sizes.groups ? 4 : 6;
            return of_one_part * (sizes.parts == 1 ? 1 : sizes.parts * sizes.batch);
        }
        default: return 1;
    }
}

}  // namespace stowage::layers
