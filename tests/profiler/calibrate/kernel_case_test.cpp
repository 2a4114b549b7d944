#include "profiler/calibrate/kernel_case.hpp"

#include <gtest/gtest.h>

#include <set>

#include "planner/program/kernel_times.hpp"
#include "profiler/calibrate/campaign.hpp"

namespace stowage::calibrate {
namespace {

using types::Bytes;

types::Device device() {
    types::Device device;
    device.gemm_bf16 = {700e12};
    device.gemm_ramp = types::Nanoseconds{2500};
    device.kernel_overhead = types::Nanoseconds{1460};
    device.memory_bandwidth = {4353e9};
    device.attention_forward_bf16 = {569e12};
    device.attention_backward_bf16 = {527e12};
    device.attention_forward = {277, 193};
    device.attention_backward = {648, 133};
    return device;
}

KernelRates rates(double tflop, types::AttentionLoss loss = {}) {
    return {.tflop_per_s = tflop, .gb_per_s = 4353, .overhead_us = 1.46, .ramp_us = 2.5, .loss = loss};
}

/// The planner's time of the same work.
double planned_us(const KernelCase& kernel) {
    const KernelWork work = work_of(kernel);
    layers::Kernel planned;
    planned.flops = work.flops;
    planned.traffic = Bytes{static_cast<std::int64_t>(work.operand_bytes + work.result_bytes)};
    planned.result = Bytes{static_cast<std::int64_t>(work.result_bytes)};
    planned.attention = {.rows = work.rows,
                         .keys = work.keys,
                         .longest = work.longest,
                         .head_size = 128,
                         .between = Bytes{static_cast<std::int64_t>(work.between_bytes)}};
    const auto phase = kernel.kind == KernelKind::attention_backward ? layers::Phase::backward : layers::Phase::forward;
    return types::in_microseconds(is_attention(kernel.kind) ? program::attention_time(planned, phase, device())
                                                            : program::gemm_time(planned, device()));
}

// Rounding up to whole nanoseconds, in three parts, is all that may differ.
TEST(KernelCase, TakesAsLongAsThePlannerSays) {
    for (const KernelCase& kernel : fitted_kernels()) {
        if (is_bf16_gemm(kernel.kind)) {
            EXPECT_NEAR(gemm_us(work_of(kernel), rates(700)), planned_us(kernel), 0.004) << name_of(kernel);
        } else if (kernel.kind == KernelKind::attention_forward && kernel.head_size == 128) {
            EXPECT_NEAR(attention_us(work_of(kernel), rates(569, {277, 193})), planned_us(kernel), 0.004)
                << name_of(kernel);
        } else if (kernel.kind == KernelKind::attention_backward && kernel.head_size == 128) {
            EXPECT_NEAR(attention_us(work_of(kernel), rates(527, {648, 133})), planned_us(kernel), 0.004)
                << name_of(kernel);
        }
    }
}

// 2 x 16 x 48 x 32 operations; 16 x 32 + 48 x 32 numbers in, 16 x 48 out, two bytes each.
TEST(KernelCase, CountsAProductsWork) {
    const KernelWork forward = work_of(linear(KernelKind::linear_forward, 16, 48, 32));
    EXPECT_EQ(forward.flops, 2.0 * 16 * 48 * 32);
    EXPECT_EQ(forward.operand_bytes, 2.0 * (16 * 32 + 48 * 32));
    EXPECT_EQ(forward.result_bytes, 2.0 * 16 * 48);
    const KernelWork input = work_of(linear(KernelKind::linear_input_gradient, 16, 48, 32));
    EXPECT_EQ(input.operand_bytes, 2.0 * (16 * 48 + 48 * 32));
    EXPECT_EQ(input.result_bytes, 2.0 * 16 * 32);
    // Added to what is there: read and written.
    const KernelWork weight = work_of(linear(KernelKind::linear_weight_gradient, 16, 48, 32));
    EXPECT_EQ(weight.operand_bytes, 2.0 * (16 * 48 + 16 * 32));
    EXPECT_EQ(weight.result_bytes, 2 * 2.0 * 48 * 32);
    const KernelWork narrow = work_of(linear(KernelKind::fp8_forward, 16, 48, 32));
    EXPECT_EQ(narrow.operand_bytes, 1.0 * (16 * 32 + 48 * 32));
    EXPECT_EQ(narrow.result_bytes, 2.0 * 16 * 48);
}

// Two heads, 64 tokens in sequences of 32: 128 rows that see 16 keys on average, 2 x 128 x 16 = 4096 times the sizes.
TEST(KernelCase, CountsAttentionsWork) {
    const KernelWork forward = work_of(attention(KernelKind::attention_forward, 64, 32, 2, 192, 128));
    EXPECT_EQ(forward.rows, 128);
    EXPECT_EQ(forward.keys, 16);
    EXPECT_EQ(forward.longest, 32);
    EXPECT_EQ(forward.flops, 4096.0 * (192 + 128));
    EXPECT_EQ(forward.operand_bytes, 2.0 * 64 * 2 * (192 + 192 + 128 + 128) + 4 * 128);
    const KernelWork backward = work_of(attention(KernelKind::attention_backward, 64, 32, 2, 192, 128));
    EXPECT_EQ(backward.flops, 4096.0 * (3 * 192 + 2 * 128));
    // The gradient of the scores' unmasked half in bf16, written and read.
    EXPECT_EQ(backward.between_bytes, 2 * 2.0 * 128 * 16);
}

TEST(KernelCase, CountsBytesOfMemoryBoundKernels) {
    EXPECT_EQ(work_of(rows_of(KernelKind::norm_forward, 4, 8)).operand_bytes, 2.0 * 2 * 32);
    EXPECT_EQ(work_of(rows_of(KernelKind::norm_backward, 4, 8)).operand_bytes, 2.0 * 3 * 32);
    EXPECT_EQ(work_of(rows_of(KernelKind::activation_forward, 4, 8)).operand_bytes, 2.0 * 3 * 32);
    EXPECT_EQ(work_of(rows_of(KernelKind::activation_backward, 4, 8)).operand_bytes, 2.0 * 6 * 32);
    EXPECT_EQ(work_of(rows_of(KernelKind::memory_copy, 1000)).operand_bytes, 2000);
    EXPECT_EQ(work_of(rows_of(KernelKind::strided_copy, 1000)).operand_bytes, 4000);
}

TEST(KernelCase, HasANameOfItsOwn) {
    std::set<std::string> names;
    for (const KernelCase& kernel : fitted_kernels())
        EXPECT_TRUE(names.insert(name_of(kernel)).second) << name_of(kernel);
    EXPECT_TRUE(names.contains("linear forward 4096 x 4096 x 12288"));
    EXPECT_TRUE(names.contains("attention backward 16 heads of 192/128, 1 x 4096 tokens"));
}

}  // namespace
}  // namespace stowage::calibrate
