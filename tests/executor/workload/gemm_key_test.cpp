#include "executor/workload/gemm_key.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Matrix = std::vector<double>;

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kColumns = 4;
constexpr std::int64_t kDepth = 5;

CallSizes sizes() {
    CallSizes result;
    result.rows = kRows;
    result.columns = kColumns;
    result.depth = kDepth;
    return result;
}

Matrix counting(std::int64_t count, double first) {
    Matrix matrix;
    for (std::int64_t i = 0; i < count; ++i) matrix.push_back(first + static_cast<double>(i));
    return matrix;
}

/// What a library that counts column by column computes for a key, on bytes that hold our matrices.
Matrix column_major_product(const GemmKey& key, const Matrix& a, const Matrix& b) {
    Matrix d(static_cast<std::size_t>(key.ldd * key.n));
    for (std::int64_t i = 0; i < key.m; ++i) {
        for (std::int64_t j = 0; j < key.n; ++j) {
            double sum = 0;
            for (std::int64_t p = 0; p < key.k; ++p) {
                const auto at_a = key.transpose_a ? p + i * key.lda : i + p * key.lda;
                const auto at_b = key.transpose_b ? j + p * key.ldb : p + j * key.ldb;
                sum += a.at(static_cast<std::size_t>(at_a)) * b.at(static_cast<std::size_t>(at_b));
            }
            d.at(static_cast<std::size_t>(i + j * key.ldd)) = sum;
        }
    }
    return d;
}

double& at(Matrix& matrix, std::int64_t row, std::int64_t column, std::int64_t columns) {
    return matrix.at(static_cast<std::size_t>(row * columns + column));
}

/// The library's result on the call's own buffers, in the call's order.
Matrix run(Call call, const std::vector<Matrix>& buffers) {
    const GemmOperands operands = gemm_operands(call, sizes());
    return column_major_product(gemm_key(call, sizes()), buffers.at(operands.a), buffers.at(operands.b));
}

TEST(GemmKey, OfTheForwardGivesRowMajorProductWithTheWeightTransposed) {
    Matrix a = counting(kRows * kDepth, 1);
    Matrix weight = counting(kColumns * kDepth, 100);
    Matrix expected(kRows * kColumns);
    for (std::int64_t t = 0; t < kRows; ++t)
        for (std::int64_t c = 0; c < kColumns; ++c)
            for (std::int64_t k = 0; k < kDepth; ++k)
                at(expected, t, c, kColumns) += at(a, t, k, kDepth) * at(weight, c, k, kDepth);
    EXPECT_EQ(run(Call::linear_forward, {a, weight}), expected);
}

TEST(GemmKey, OfTheInputGradientGivesRowMajorProductWithTheWeight) {
    Matrix dy = counting(kRows * kColumns, 1);
    Matrix weight = counting(kColumns * kDepth, 100);
    Matrix expected(kRows * kDepth);
    for (std::int64_t t = 0; t < kRows; ++t)
        for (std::int64_t c = 0; c < kColumns; ++c)
            for (std::int64_t k = 0; k < kDepth; ++k)
                at(expected, t, k, kDepth) += at(dy, t, c, kColumns) * at(weight, c, k, kDepth);
    EXPECT_EQ(run(Call::linear_input_gradient, {dy, weight}), expected);
}

TEST(GemmKey, OfTheWeightGradientSumsOverTheRows) {
    Matrix dy = counting(kRows * kColumns, 1);
    Matrix a = counting(kRows * kDepth, 100);
    Matrix expected(kColumns * kDepth);
    for (std::int64_t t = 0; t < kRows; ++t)
        for (std::int64_t c = 0; c < kColumns; ++c)
            for (std::int64_t k = 0; k < kDepth; ++k)
                at(expected, c, k, kDepth) += at(dy, t, c, kColumns) * at(a, t, k, kDepth);
    EXPECT_EQ(run(Call::linear_weight_gradient, {dy, a}), expected);
    EXPECT_TRUE(gemm_key(Call::linear_weight_gradient, sizes()).add);
}

TEST(GemmKey, TakesTheGradientsTypeOnlyForTheWeightGradient) {
    CallSizes fp32 = sizes();
    fp32.gradient_type = types::DataType::fp32;
    EXPECT_EQ(gemm_key(Call::linear_weight_gradient, fp32).output, types::DataType::fp32);
    EXPECT_EQ(gemm_key(Call::linear_weight_gradient, sizes()).output, types::DataType::bf16);
    EXPECT_EQ(gemm_key(Call::linear_input_gradient, fp32).output, types::DataType::bf16);
}

TEST(GemmKey, OfAForwardIsInFp32WhereTheResultIs) {
    CallSizes router = sizes();
    router.fp32_result = true;
    EXPECT_EQ(gemm_key(Call::linear_forward, router).output, types::DataType::fp32);
    EXPECT_EQ(gemm_key(Call::linear_forward, sizes()).output, types::DataType::bf16);
}

TEST(GemmKey, OfExpertsWithAsManyRowsIsOneProductForAll) {
    CallSizes grouped = sizes();
    grouped.experts = 4;
    grouped.rows = 4 * kRows;
    for (const auto& [call, linear] : {std::pair{Call::grouped_linear_forward, Call::linear_forward},
                                       {Call::grouped_linear_input_gradient, Call::linear_input_gradient},
                                       {Call::grouped_linear_weight_gradient, Call::linear_weight_gradient}}) {
        GemmKey expected = gemm_key(linear, sizes());
        expected.experts = 4;
        EXPECT_EQ(gemm_keys(call, grouped), std::vector<GemmKey>{expected});
        EXPECT_EQ(of_one_expert(expected), gemm_key(linear, sizes()));
        EXPECT_EQ(flops(expected), 4 * 2 * 3 * 4 * 5);
    }
}

// 14 rows of 4 experts: 3, 4, 3 and 4.
TEST(GemmKey, OfExpertsWithDifferentRowsIsAProductForEachNumberOfRows) {
    CallSizes grouped = sizes();
    grouped.experts = 4;
    grouped.rows = 14;
    CallSizes more = sizes();
    more.rows = 4;
    const std::vector<GemmKey> expected = {gemm_key(Call::linear_forward, sizes()),
                                           gemm_key(Call::linear_forward, more)};
    EXPECT_EQ(gemm_keys(Call::grouped_linear_forward, grouped), expected);
    EXPECT_THROW(gemm_key(Call::grouped_linear_forward, grouped), std::logic_error);
}

TEST(GemmKey, OfFewerRowsThanExpertsIsAProductOfOneRow) {
    CallSizes grouped = sizes();
    grouped.experts = 4;
    grouped.rows = 3;
    CallSizes one = sizes();
    one.rows = 1;
    EXPECT_EQ(gemm_keys(Call::grouped_linear_weight_gradient, grouped),
              std::vector<GemmKey>{gemm_key(Call::linear_weight_gradient, one)});
}

TEST(GemmOperands, OfGroupedLayersAreThoseOfLinearOnes) {
    EXPECT_EQ(gemm_operands(Call::grouped_linear_forward, sizes()), gemm_operands(Call::linear_forward, sizes()));
    EXPECT_EQ(gemm_operands(Call::grouped_linear_weight_gradient, sizes()),
              gemm_operands(Call::linear_weight_gradient, sizes()));
}

// a, weight, [bias], [addend], y, workspace
TEST(GemmOperands, OfTheForwardFollowTheContractWithAndWithoutWhatIsOptional) {
    CallSizes both = sizes();
    both.has_bias = true;
    both.has_addend = true;
    GemmOperands expected{.a = 1, .b = 0, .c = 3, .d = 4, .bias = 2, .workspace = 5};
    EXPECT_EQ(gemm_operands(Call::linear_forward, both), expected);
    expected = {.a = 1, .b = 0, .c = 2, .d = 2, .bias = GemmOperands::kNone, .workspace = 3};
    EXPECT_EQ(gemm_operands(Call::linear_forward, sizes()), expected);
    EXPECT_EQ(expected.count(), 4U);
}

Matrix transposed(const Matrix& matrix, std::int64_t rows, std::int64_t columns) {
    Matrix result(matrix.size());
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c)
            result.at(static_cast<std::size_t>(c * rows + r)) = matrix.at(static_cast<std::size_t>(r * columns + c));
    return result;
}

/// What calls in FP8 give on the copies that the contract names, with a scale in each place for one.
Matrix run_fp8(Call call, const Matrix& first, const Matrix& second) { return run(call, {first, {1}, second, {1}}); }

// The same products as in bf16, from factors that lie along the sum.
TEST(GemmKey, InFp8GivesWhatTheCallsInBf16Do) {
    const Matrix a = counting(kRows * kDepth, 1);
    const Matrix weight = counting(kColumns * kDepth, 100);
    const Matrix dy = counting(kRows * kColumns, 1);
    EXPECT_EQ(run_fp8(Call::fp8_linear_forward, a, weight), run(Call::linear_forward, {a, weight}));
    EXPECT_EQ(run_fp8(Call::fp8_linear_input_gradient, dy, transposed(weight, kColumns, kDepth)),
              run(Call::linear_input_gradient, {dy, weight}));
    EXPECT_EQ(run_fp8(Call::fp8_linear_weight_gradient, transposed(dy, kRows, kColumns), transposed(a, kRows, kDepth)),
              run(Call::linear_weight_gradient, {dy, a}));
}

// cuBLASLt takes FP8 on Hopper only as T N.
TEST(GemmKey, InFp8SumsAlongTheColumnsOfBoth) {
    for (const Call call :
         {Call::fp8_linear_forward, Call::fp8_linear_input_gradient, Call::fp8_linear_weight_gradient}) {
        const GemmKey key = gemm_key(call, sizes());
        EXPECT_TRUE(key.transpose_a);
        EXPECT_FALSE(key.transpose_b);
        EXPECT_EQ(key.lda, key.k);
        EXPECT_EQ(key.ldb, key.k);
        EXPECT_EQ(key.factors, call == Call::fp8_linear_forward ? GemmFactors::e4m3 : GemmFactors::e4m3_and_e5m2);
        EXPECT_EQ(factor_bytes(key), 1);
    }
    EXPECT_EQ(factor_bytes(gemm_key(Call::linear_forward, sizes())), 2);
}

TEST(GemmOperands, InFp8HaveScalesBehindEachFactor) {
    CallSizes both = sizes();
    both.has_bias = true;
    both.has_addend = true;
    GemmOperands expected{.a = 2, .b = 0, .c = 5, .d = 6, .bias = 4, .a_scales = 3, .b_scales = 1, .workspace = 7};
    EXPECT_EQ(gemm_operands(Call::fp8_linear_forward, both), expected);
    expected = {.a = 2, .b = 0, .c = 4, .d = 4, .a_scales = 3, .b_scales = 1, .workspace = 5};
    EXPECT_EQ(gemm_operands(Call::fp8_linear_weight_gradient, sizes()), expected);
    EXPECT_EQ(gemm_operands(Call::fp8_linear_input_gradient, sizes()), expected);
}

TEST(GemmKey, RefusesWhatIsNoMatrixProduct) {
    EXPECT_THROW(gemm_key(Call::norm_forward, sizes()), std::logic_error);
    EXPECT_THROW(gemm_operands(Call::clear, sizes()), std::logic_error);
    CallSizes empty = sizes();
    empty.depth = 0;
    EXPECT_THROW(gemm_key(Call::linear_forward, empty), std::logic_error);
}

TEST(GemmKey, CountsAMultiplicationAndAnAdditionForEachTerm) {
    EXPECT_EQ(flops(gemm_key(Call::linear_forward, sizes())), 2 * 3 * 4 * 5);
    EXPECT_EQ(to_string(gemm_key(Call::linear_forward, sizes())), "T N 4 x 3 x 5 bf16");
    EXPECT_EQ(to_string(gemm_key(Call::fp8_linear_input_gradient, sizes())), "T N 5 x 3 x 4 bf16 of e4m3_and_e5m2");
}

}  // namespace
}  // namespace stowage::executor
