#pragma once

// How many bytes each parameter's values take: parameter, gradient, main parameter, moments. One place for states and
// for the optimizer's traffic.

#include "planner/layers/dimensions.hpp"
#include "planner/layers/layer_script.hpp"

namespace stowage::layers {

bool is_fp8(types::Precision precision);

/// Whether FP8 linears hold FP8 weights and nothing wider (fp8_param_gather of an FP8 run).
bool holds_fp8_parameters(const types::Scenario& scenario);

/// Bytes an element, by use.
struct StateFormats {
    std::int64_t parameter = 2;
    std::int64_t gradient = 4;  ///< of the buffers that microbatches add into and ranks reduce
    std::int64_t main = 4;      ///< main parameter
    std::int64_t exp_avg = 4;   ///< first moment, or the momentum of SGD
    std::int64_t exp_avg_sq = 4;
    std::int64_t kept_gradient = 0;  ///< fp32 copy of the shard's gradient, from one step to the start of the next
    bool optimizer_holds_main =
        false;  ///< main parameters are made with the moments, and Adam writes parameters itself
    [[nodiscard]] std::int64_t moments() const { return exp_avg + exp_avg_sq; }
};

/// With bf16 gradients are summed in fp32 unless `grad_reduce_in_bf16` or a 16-bit `main_grads_dtype` says otherwise;
/// with fp16 in fp16. Where the buffer is narrower than fp32, the optimizer works on an fp32 copy that lives until the
/// next step starts, unless the precision-aware optimizer reads the buffer itself. That one keeps, for bf16 parameters
/// with fp32 main parameters, only the 16 bits that the parameter lacks; it does not manage main parameters of FP8 runs
/// other than delayed scaling.
/// Source: Megatron-LM, core/optimizer/optimizer_config.py, distrib_optimizer.py, training/arguments.py; Transformer
/// Engine, pytorch/optimizers/fused_adam.py (store_param_remainders).
StateFormats state_formats(const types::Scenario& scenario);

/// Bytes of a quantised copy of a weight [rows, columns]: the data once for each direction that a GEMM reads it in, and
/// its scales. Tensor-wide scales: one copy, on Hopper a transposed one too, whose GEMMs take no other operand.
/// Blocks of 128 x 128 and MXFP8: both; scales of MXFP8 one byte for 32 elements, padded to 128 x 4. NVFP4: half a byte
/// an element, one byte of scale for 16. Scales and histories of delayed scaling, a few numbers a linear, are left out.
/// Source: Transformer Engine, pytorch/tensor/*.py (quantizers and their scale shapes).
Bytes quantized_weight(const types::Scenario& scenario, const Shape& shape);

}  // namespace stowage::layers
