#include "planner/layers/kernel_call.hpp"

#include <array>

namespace stowage::layers {

std::string_view name_of(Call call) {
    static constexpr std::array<std::string_view, 23> kNames{"none",
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
                                                             "clear",
                                                             "copy"};
    return kNames[static_cast<std::size_t>(call)];
}

}  // namespace stowage::layers
