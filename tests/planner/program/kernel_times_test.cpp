#include "planner/program/kernel_times.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "tests/planner/program/measured_kernels.hpp"

namespace stowage::program {
namespace {

using layers::Kernel;
using layers::Phase;
using testing::Gemm;
using testing::MeasuredAttention;
using testing::MeasuredGemm;
using types::Bytes;
using types::Device;
using types::KernelClass;
using types::Nanoseconds;

/// 100 TFLOP/s, in FP8 200 and in blocks 160; 1 TB/s; 1 us for any kernel and 2 us more for a GEMM.
Device round_device() {
    Device device;
    device.gemm_bf16 = {100e12};
    device.gemm_fp8 = {200e12};
    device.gemm_fp8_blockwise = {160e12};
    device.gemm_ramp = Nanoseconds{2000};
    device.attention_forward_bf16 = {50e12};
    device.attention_backward_bf16 = {40e12};
    device.memory_bandwidth = {1e12};
    device.kernel_overhead = Nanoseconds{1000};
    return device;
}

std::int64_t gemm(const Kernel& kernel) { return gemm_time(kernel, round_device()).count(); }

/// 1e9 operations, `traffic` bytes of which `result` leave.
Kernel gemm_of(std::int64_t traffic, std::int64_t result) {
    return {.name = "gemm",
            .kind = KernelClass::gemm,
            .flops = 1e9,
            .traffic = Bytes{traffic},
            .measured = {},
            .result = Bytes{result}};
}

// 1e9 operations are 10 us. Operands of 4e6 bytes, 4 us, are read meanwhile; a result of 2e6 leaves in 2 us after it.
TEST(GemmTime, WritesTheResultAfterMultiplying) {
    EXPECT_EQ(gemm(gemm_of(6'000'000, 2'000'000)), 10'000 + 2'000 + 3'000);
}

// Operands of 40e6 bytes: 40 us.
TEST(GemmTime, WaitsForOperandsThatTakeLongerThanMultiplying) {
    EXPECT_EQ(gemm(gemm_of(42'000'000, 2'000'000)), 40'000 + 2'000 + 3'000);
}

TEST(GemmTime, StartsAndDrainsOnceForEachExpert) {
    Kernel kernel = gemm_of(6'000'000, 2'000'000);
    kernel.count = 8;
    EXPECT_EQ(gemm(kernel), 10'000 + 2'000 + 8 * 3'000);
}

// 5 us in FP8, 6.25 with a scale for each block; a device that does not tell the two apart takes 5 for both.
TEST(GemmTime, TakesLongerWhereBlocksHaveScales) {
    Kernel kernel = gemm_of(0, 0);
    kernel.fp8 = true;
    EXPECT_EQ(gemm(kernel), 5'000 + 3'000);
    kernel.block_scaled = true;
    EXPECT_EQ(gemm(kernel), 6'250 + 3'000);
    Device device = round_device();
    device.gemm_fp8_blockwise = {};
    EXPECT_EQ(gemm_time(kernel, device).count(), 5'000 + 3'000);
}

Kernel attention_of(const layers::AttentionWork& work) {
    return {.name = "attention",
            .kind = KernelClass::attention,
            .flops = 1e9,
            .traffic = {},
            .measured = {},
            .attention = work};
}

std::int64_t attention(const layers::AttentionWork& work, const Device& device, Phase phase = Phase::forward) {
    return attention_time(attention_of(work), phase, device).count();
}

// 1e9 operations: 20 us forward, 25 backward.
TEST(AttentionTime, RunsAtTheFullRateWhereNothingIsLost) {
    EXPECT_EQ(attention({}, round_device()), 20'000 + 1'000);
    EXPECT_EQ(attention({12800, 1000, 2000, 128}, round_device()), 20'000 + 1'000);
    EXPECT_EQ(attention({12800, 1000, 2000, 128}, round_device(), Phase::recompute), 20'000 + 1'000);
    EXPECT_EQ(attention({12800, 1000, 2000, 128}, round_device(), Phase::backward), 25'000 + 1'000);
}

// 250 keys of 1000: a quarter more.
TEST(AttentionTime, PaysForTheStartOfARow) {
    Device device = round_device();
    device.attention_forward.start_keys = 250;
    EXPECT_EQ(attention({12800, 1000, 2000, 128}, device), 25'000 + 1'000);
    EXPECT_EQ(attention({12800, 1000, 2000, 128}, device, Phase::backward), 25'000 + 1'000);
}

// 12800 rows are 100 blocks; 50 more make half more. A window whose longest row sees half more than the mean: a quarter
// more. Rows that see the same: nothing.
TEST(AttentionTime, LosesTheTailOfUnevenBlocks) {
    Device device = round_device();
    device.attention_forward.tail_blocks = 50;
    EXPECT_EQ(attention({12800, 1000, 2000, 128}, device), 30'000 + 1'000);
    EXPECT_EQ(attention({12800, 1000, 1500, 128}, device), 25'000 + 1'000);
    EXPECT_EQ(attention({12800, 1000, 1000, 128}, device), 20'000 + 1'000);
}

// 1e9 operations backward are 25 us. 4e6 bytes of scores that pass through memory are 4 us more, though the kernels'
// own operands, 20e6 bytes in 20 us, are read meanwhile.
TEST(AttentionTime, PaysForWhatPassesThroughMemoryBetweenItsKernels) {
    layers::AttentionWork work{12800, 1000, 2000, 128};
    work.between = Bytes{4'000'000};
    Kernel kernel = attention_of(work);
    kernel.traffic = Bytes{20'000'000};
    EXPECT_EQ(attention_time(kernel, Phase::backward, round_device()).count(), 25'000 + 4'000 + 1'000);
}

// Half the rate at 64, the full one at 128 and 1.25 of it at 256: 1.125 at 192, 16 us at 256 and beyond, 40 at 32.
TEST(AttentionTime, FindsTheRateOfAHeadSizeOnTheLineBetweenKnownOnes) {
    Device device = round_device();
    device.attention_head_sizes = {{64, 0.5, 1}, {128, 1, 1}, {256, 1.25, 0.8}};
    const auto time = [&](double head_size) { return attention({12800, 1000, 2000, head_size}, device); };
    EXPECT_EQ(time(32), 40'000 + 1'000);
    EXPECT_EQ(time(64), 40'000 + 1'000);
    EXPECT_EQ(time(128), 20'000 + 1'000);
    EXPECT_NEAR(static_cast<double>(time(192)), 20'000 / 1.125 + 1'000, 1);
    EXPECT_EQ(time(256), 16'000 + 1'000);
    EXPECT_EQ(time(512), 16'000 + 1'000);
    EXPECT_NEAR(static_cast<double>(attention({12800, 1000, 2000, 256}, device, Phase::backward)), 31'250 + 1'000, 1);
}

// Multiplying at 1.25 times the rate: 8 us of 10, 16 of 20. The result's 2 us and the fixed 3 and 1 us stay.
TEST(KernelTime, MultipliesFasterAndMovesBytesAsBefore) {
    EXPECT_EQ(gemm_time(gemm_of(6'000'000, 2'000'000), round_device(), 1.25).count(), 8'000 + 2'000 + 3'000);
    EXPECT_EQ(gemm_time(gemm_of(42'000'000, 2'000'000), round_device(), 1.25).count(), 40'000 + 2'000 + 3'000);
    const Kernel kernel = attention_of({12800, 1000, 2000, 128});
    EXPECT_EQ(attention_time(kernel, Phase::forward, round_device(), 1.25).count(), 16'000 + 1'000);
}

// 1.2 at a half, 1.1 at 0.8 and 1 at 1: half-way between two is the mean of the two.
TEST(RatesAtDuty, LieOnTheLinesBetweenKnownOnes) {
    Device device = round_device();
    EXPECT_EQ(rates_at_duty(device, 0.5).gemm, 1) << "nothing known";
    device.rates_by_duty = {{0.5, 1.2, 1.4}, {0.8, 1.1, 1.2}};
    EXPECT_EQ(rates_at_duty(device, 0.1).gemm, 1.2);
    EXPECT_EQ(rates_at_duty(device, 0.5).attention, 1.4);
    EXPECT_NEAR(rates_at_duty(device, 0.65).gemm, 1.15, 1e-12);
    EXPECT_NEAR(rates_at_duty(device, 0.65).attention, 1.3, 1e-12);
    EXPECT_NEAR(rates_at_duty(device, 0.8).gemm, 1.1, 1e-12);
    EXPECT_NEAR(rates_at_duty(device, 0.9).gemm, 1.05, 1e-12);
    EXPECT_NEAR(rates_at_duty(device, 0.9).attention, 1.1, 1e-12);
    EXPECT_EQ(rates_at_duty(device, 1).gemm, 1);
}

// The layer that was calibrated (docs/measurements/2026-11-30-profiler.md) ran GEMMs at 738.7 TFLOP/s, at 837.3 when
// busy for 0.75 of the time and at 858.2 for 0.5; GEMMs and attention are 0.967 of it.
TEST(RatesAtDuty, OfTheShippedH200AreThoseThatWereMeasured) {
    const Device device = reader::read_hardware(STOWAGE_SOURCE_DIR "/scenarios/hardware/h200-8gpu.yaml").device;
    EXPECT_NEAR(rates_at_duty(device, 0.967 * 0.5).gemm, 858.2 / 738.7, 0.001);
    EXPECT_NEAR(rates_at_duty(device, 0.967 * 0.75).gemm, 837.3 / 738.7, 0.001);
    EXPECT_EQ(rates_at_duty(device, 0.967).gemm, 1);
    EXPECT_EQ(rates_at_duty(device, 0.99).gemm, 1);
}

// ----------------------------------------------------------------------------------------------------- against an H200

/// scenarios/hardware/h200-8gpu.yaml at the clock of the measurement, 1634 MHz and not 1520.
Device measured_device() {
    Device device;
    device.gemm_bf16 = {758e12};
    device.gemm_ramp = Nanoseconds{2500};
    device.attention_forward_bf16 = {612e12};
    device.attention_backward_bf16 = {567e12};
    device.attention_forward = {277, 193};
    device.attention_backward = {648, 133};
    device.attention_head_sizes = {{64, 0.67, 0.74}, {128, 1, 1}, {160, 0.98, 0.89}, {256, 1.08, 0.80}};
    device.memory_bandwidth = {4353e9};
    device.kernel_overhead = Nanoseconds{1460};
    return device;
}

Kernel kernel_of(const MeasuredGemm& gemm) {
    const std::int64_t inputs = std::int64_t{gemm.m} * gemm.k;
    const std::int64_t weights = std::int64_t{gemm.k} * gemm.n;
    const std::int64_t outputs = std::int64_t{gemm.m} * gemm.n;
    std::int64_t read = 2 * (inputs + weights);
    std::int64_t result = 2 * outputs;
    if (gemm.pass == Gemm::input_gradient) {
        read = 2 * (outputs + weights);
        result = 2 * inputs;
    }
    if (gemm.pass == Gemm::weight_gradient || gemm.pass == Gemm::added_weight_gradient) {
        read = 2 * (outputs + inputs);
        result = (gemm.pass == Gemm::weight_gradient ? 4 : 8) * weights;
    }
    return {.name = "gemm",
            .kind = KernelClass::gemm,
            .flops = 2.0 * gemm.experts * static_cast<double>(inputs) * gemm.n,
            .traffic = Bytes{gemm.experts * (read + result)},
            .measured = {},
            .result = Bytes{gemm.experts * result},
            .count = gemm.experts};
}

Kernel kernel_of(const MeasuredAttention& attention) {
    const double tokens = attention.tokens;
    const double rows = attention.heads * tokens;
    const double keys = attention.causal ? tokens / 2 : tokens;
    const int per_pair = attention.forward ? attention.query_size + attention.value_size
                                           : 3 * attention.query_size + 2 * attention.value_size;
    return {.name = "attention",
            .kind = KernelClass::attention,
            .flops = 2 * rows * keys * per_pair,
            .traffic = {},
            .measured = {},
            .attention = {rows, keys, tokens, (attention.query_size + attention.value_size) / 2.0}};
}

/// Relative errors of predicted times.
struct Errors {
    int count = 0;
    double squares = 0;
    double largest = 0;

    void add(Nanoseconds predicted, double microseconds) {
        const double error = std::abs(types::in_microseconds(predicted) / microseconds - 1);
        ++count;
        squares += error * error;
        largest = std::max(largest, error);
    }
    [[nodiscard]] double root_mean_square() const { return std::sqrt(squares / count); }
};

Errors gemm_errors(bool experts) {
    Errors errors;
    for (const MeasuredGemm& gemm : testing::kMeasuredGemms)
        if ((gemm.experts > 1) == experts) errors.add(gemm_time(kernel_of(gemm), measured_device()), gemm.microseconds);
    return errors;
}

Errors attention_errors(bool forward, bool usual_size) {
    Errors errors;
    const Phase phase = forward ? Phase::forward : Phase::backward;
    for (const MeasuredAttention& row : testing::kMeasuredAttention)
        if (row.forward == forward && (row.query_size <= 128) == usual_size && row.query_size != 64)
            errors.add(attention_time(kernel_of(row), phase, measured_device()), row.microseconds);
    return errors;
}

TEST(GemmTime, IsWithinFifteenPercentOfEveryMeasuredDenseShape) {
    const Errors errors = gemm_errors(false);
    EXPECT_EQ(errors.count, 119);
    EXPECT_LT(errors.largest, 0.15);
    EXPECT_LT(errors.root_mean_square(), 0.04);
}

TEST(GemmTime, IsWithinTwentyPercentOfEveryMeasuredSetOfExperts) {
    const Errors errors = gemm_errors(true);
    EXPECT_EQ(errors.count, 40);
    EXPECT_LT(errors.largest, 0.20);
    EXPECT_LT(errors.root_mean_square(), 0.10);
}

TEST(AttentionTime, IsWithinSixPercentForwardAndFifteenBackwardForHeadsOf128) {
    const Errors forward = attention_errors(true, true);
    const Errors backward = attention_errors(false, true);
    EXPECT_EQ(forward.count, 23);
    EXPECT_LT(forward.largest, 0.06);
    EXPECT_LT(forward.root_mean_square(), 0.03);
    EXPECT_EQ(backward.count, 25);
    EXPECT_LT(backward.largest, 0.15);
    EXPECT_LT(backward.root_mean_square(), 0.06);
}

// Four heads of 256 at 4096 tokens are 128 blocks on 132 multiprocessors, and run slower than their count says.
TEST(AttentionTime, IsWithinTwentySixPercentForLargerHeads) {
    const Errors forward = attention_errors(true, false);
    const Errors backward = attention_errors(false, false);
    EXPECT_EQ(forward.count, 8);
    EXPECT_LT(forward.largest, 0.24);
    EXPECT_EQ(backward.count, 8);
    EXPECT_LT(backward.largest, 0.26);
}

}  // namespace
}  // namespace stowage::program
