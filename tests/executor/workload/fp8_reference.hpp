#pragma once

// FP8 on the host, from the definition of its formats: Micikevicius et al., "FP8 formats for deep learning" (2022),
// table 1. No code of the device or of CUDA's headers takes part.

#include <cstdint>
#include <vector>

namespace stowage::executor {

/// e4m3: exponent bias 7, three bits behind the leading one, no infinity, NaN where all but the sign is set. e5m2: bias
/// 15, two bits, infinity and NaN as IEEE has them.
struct Fp8Numbers {
    int exponent_bias = 7;
    int mantissa_bits = 3;
    int largest_code = 0x7e;

    /// Of a code without NaN and infinity.
    [[nodiscard]] float value(std::uint8_t code) const;
    [[nodiscard]] float largest() const { return value(static_cast<std::uint8_t>(largest_code)); }
    /// The nearest number; of two as near the one whose last bit is 0; the largest for what is beyond it.
    [[nodiscard]] std::uint8_t code(float value) const;
};

inline constexpr Fp8Numbers kE4m3{7, 3, 0x7e};
inline constexpr Fp8Numbers kE5m2{15, 2, 0x7b};

/// A tensor rounded with one scale: x * factor, and what a number stands for.
struct Fp8Tensor {
    float factor = 1;
    float inverse = 1;
    std::vector<std::uint8_t> codes;
    std::vector<double> values;  ///< that the codes stand for
};
Fp8Tensor to_fp8(const std::vector<float>& x, const Fp8Numbers& numbers);

/// rows x columns to columns x rows.
template <class Element>
std::vector<Element> transposed(const std::vector<Element>& matrix, std::int64_t rows, std::int64_t columns) {
    std::vector<Element> result(matrix.size());
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c)
            result[static_cast<std::size_t>(c * rows + r)] = matrix[static_cast<std::size_t>(r * columns + c)];
    return result;
}

}  // namespace stowage::executor
