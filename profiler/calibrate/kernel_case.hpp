#pragma once

// The kernels that are measured, what each has to do, and the model that the planner has of its time.
//
// Tested by: tests/profiler/calibrate/kernel_case_test.cpp, against planner/program/kernel_times.

#include <cstdint>
#include <string>

#include "scenarios/types/hardware.hpp"

namespace stowage::calibrate {

enum class KernelKind : std::uint8_t {
    linear_forward,
    linear_input_gradient,
    linear_weight_gradient,  ///< added to what is there, in bf16
    fp8_forward,             ///< tensorwise scales, fast sums, result in bf16
    attention_forward,       ///< causal
    attention_backward,      ///< deterministic
    norm_forward,            ///< RMSNorm
    norm_backward,
    activation_forward,  ///< SwiGLU
    activation_backward,
    memory_copy,   ///< a vectorised kernel that reads `rows` bytes and writes as many
    strided_copy,  ///< gathers every third piece of 128 elements, one bf16 a thread, so many of `rows` elements
};
std::string name_of(KernelKind kind);

/// Sizes that a kind has no use for are 0.
struct KernelCase {
    KernelKind kind{};
    std::int64_t rows = 0;     ///< tokens
    std::int64_t columns = 0;  ///< outputs of a linear layer
    std::int64_t depth = 0;    ///< its inputs
    std::int64_t sequence = 0;
    std::int64_t heads = 0;
    std::int64_t head_size = 0;
    std::int64_t value_size = 0;
    friend bool operator==(const KernelCase&, const KernelCase&) = default;
};
/// "linear forward 4096 x 4096 x 12288".
std::string name_of(const KernelCase& kernel);

KernelCase linear(KernelKind kind, std::int64_t rows, std::int64_t columns, std::int64_t depth);
/// One sequence of the batch is as long as `sequence`, and all tokens are in such.
KernelCase attention(KernelKind kind, std::int64_t rows, std::int64_t sequence, std::int64_t heads,
                     std::int64_t head_size, std::int64_t value_size);
KernelCase rows_of(KernelKind kind, std::int64_t rows, std::int64_t columns = 0);

constexpr bool is_bf16_gemm(KernelKind kind) { return kind <= KernelKind::linear_weight_gradient; }
constexpr bool is_attention(KernelKind kind) {
    return kind == KernelKind::attention_forward || kind == KernelKind::attention_backward;
}

/// What a kernel has to do, in the planner's terms (planner/layers/layer_script.hpp).
struct KernelWork {
    double flops = 0;
    double operand_bytes = 0;
    double result_bytes = 0;   ///< of a GEMM; read too where it is added to
    double rows = 0;           ///< attention: of the score matrices
    double keys = 0;           ///< that a row sees on average
    double longest = 0;        ///< that the row sees which sees most
    double between_bytes = 0;  ///< that attention's kernels leave for each other
};
KernelWork work_of(const KernelCase& kernel);

/// What the planner's model takes of a device. Rates in 10^12 operations and 10^9 bytes a second.
struct KernelRates {
    double tflop_per_s = 0;
    double gb_per_s = 0;
    double overhead_us = 0;
    double ramp_us = 0;  ///< GEMM
    types::AttentionLoss loss = {};
};
/// max(operations / rate, operands / bandwidth) + result / bandwidth + overhead + ramp
double gemm_us(const KernelWork& work, const KernelRates& rates);
/// max(operations / rate x lengthening, bytes / bandwidth) + bytes between / bandwidth + overhead
double attention_us(const KernelWork& work, const KernelRates& rates);
/// bytes / bandwidth + overhead
double memory_us(const KernelWork& work, const KernelRates& rates);

}  // namespace stowage::calibrate
