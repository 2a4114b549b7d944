#pragma once

// What a linear layer asks of the GEMM library, which counts matrices column by column while ours are row by row.
//
// A matrix of r rows and c columns, row by row, is the same bytes as its transpose, c by r, column by column with
// leading dimension c. Write X' for that. T rows (tokens), C columns (outputs), K depth (inputs):
//
//   forward          Y  = A W^T    A [T,K], W [C,K], Y [T,C]     Y'  (C x T) = W'^T (C x K)  A'   (K x T)
//   input gradient   dA = dY W     dY [T,C], W [C,K], dA [T,K]   dA' (K x T) = W'   (K x C)  dY'  (C x T)
//   weight gradient  dW += dY^T A  dY [T,C], A [T,K], dW [C,K]   dW' (K x C) = A'   (K x T)  dY'^T (T x C)
//
// So the library's first matrix is W, W, A and its second A, dY, dY. A bias has one value for each of the C rows of Y',
// which is what the library's bias epilogue adds.
//
// In FP8 the library sums along the columns of both of its matrices as they lie, A'^T B (T N), so the layers bring
// transposed copies: the input gradient has W^T [K,C] for W, the weight gradient A^T [K,T] and dY^T [C,T].
//
// Grouped layers have such products for each expert, whose matrices lie one behind the other: experts with as many rows
// as each other are one key, otherwise a key for those with the fewer rows and one for those with a row more.
//
// Tested by: tests/executor/workload/gemm_key_test.cpp.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/layers/kernel_call.hpp"
#include "scenarios/types/data_type.hpp"

namespace stowage::executor {

/// What the first and the second matrix hold.
enum class GemmFactors : std::uint8_t { bf16, e4m3, e4m3_and_e5m2 };

/// D (m x n) = op(A) (m x k) op(B) (k x n) [+ bias] [+ C], column by column. FP8 factors are multiplied with a scale
/// each, which lies on the device.
struct GemmKey {
    bool transpose_a = false;
    bool transpose_b = false;
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    std::int64_t lda = 0;
    std::int64_t ldb = 0;
    std::int64_t ldd = 0;  ///< of C too
    types::DataType output = types::DataType::bf16;
    bool bias = false;
    bool add = false;          ///< beta = 1: C is added, which may be D itself
    std::int64_t experts = 1;  ///< products of this shape
    GemmFactors factors = GemmFactors::bf16;
    friend auto operator<=>(const GemmKey&, const GemmKey&) = default;
};

/// Which of a call's buffers are the library's A, B, C and D.
struct GemmOperands {
    static constexpr std::size_t kNone = ~std::size_t{0};
    std::size_t a = kNone;
    std::size_t b = kNone;
    std::size_t c = kNone;  ///< D itself where weight gradients are added to and where nothing is added
    std::size_t d = kNone;
    std::size_t bias = kNone;
    std::size_t a_scales = kNone;  ///< of FP8 factors
    std::size_t b_scales = kNone;
    std::size_t workspace = kNone;
    [[nodiscard]] std::size_t count() const { return workspace + 1; }
    friend bool operator==(const GemmOperands&, const GemmOperands&) = default;
};

/// Whether a call is one of the three of a linear layer, in bf16 or FP8, or of a grouped one.
bool is_gemm(layers::Call call);
/// Whether a call is one of the three of a grouped layer.
bool is_grouped_gemm(layers::Call call);
/// Whether a call is one of the three of a linear layer in FP8.
bool is_fp8_gemm(layers::Call call);
/// The products of a call: one key; for experts with different rows one for each number of rows above 0.
/// Throws: std::logic_error for any other call and for sizes that are not positive.
std::vector<GemmKey> gemm_keys(layers::Call call, const layers::CallSizes& sizes);
/// The only key. Throws: std::logic_error also for experts with different rows.
GemmKey gemm_key(layers::Call call, const layers::CallSizes& sizes);
/// The product of one expert.
GemmKey of_one_expert(const GemmKey& key);
/// Throws: std::logic_error for any other call.
GemmOperands gemm_operands(layers::Call call, const layers::CallSizes& sizes);

/// "T N 4096 x 512 x 1024 bf16 + bias", with " of e4m3" behind it for FP8, for messages and tables.
std::string to_string(const GemmKey& key);

/// "bf16", "e4m3", "e4m3_and_e5m2", as tables have it.
std::string_view name_of(GemmFactors factors);
/// Bytes of an element of a factor.
std::int64_t factor_bytes(const GemmKey& key);

/// Multiplications and additions, of all experts.
double flops(const GemmKey& key);

}  // namespace stowage::executor
