#pragma once

// What an operation computes or moves, with its buffers resolved as far as a body can: the executor turns each into an
// address by the instance's frames. Operations without work (those of implementation `megatron`, unless stand-ins are
// made of its kernels) can only be simulated.

#include <cstdint>
#include <vector>

#include "planner/layers/kernel_call.hpp"
#include "planner/program/operation.hpp"

namespace stowage::program {

/// One buffer of an operation.
struct BufferRef {
    enum class Space : std::uint8_t {
        frame,       ///< `slot` of the frame of `scope`
        parameter,   ///< `slot`: number of a parameter of the layer whose frame `scope` is
        gradient,    ///< the same for its main gradient
        state,       ///< `slot`: the StowageState, of which the rank has at most one
        fp8_weight,  ///< `slot`: as of a parameter, its FP8 copy
        fp8_transposed_weight,
        fp8_weight_scales,
        graph_input,     ///< the graph's own buffer for input number `slot`: Graph::inputs_begin + slot
        graph_gradient,  ///< its buffer for output gradient number `slot`: Graph::gradients_begin + slot
    };
    Space space = Space::frame;
    Scope scope = kOwnFrame;
    layers::Access access = layers::Access::read;
    std::uint32_t slot = 0;
    friend bool operator==(const BufferRef&, const BufferRef&) = default;
};

/// compute: the call and its operands. copy: source, then destination, of Operation::bytes.
struct Work {
    layers::Call call = layers::Call::none;
    layers::CallSizes sizes;
    std::vector<BufferRef> buffers;
    friend bool operator==(const Work&, const Work&) = default;
};
/// Equal work hashes alike.
std::size_t hash_of(const Work& work);

}  // namespace stowage::program
