#include "tests/executor/workload/fp8_reference.hpp"

#include <algorithm>
#include <cmath>

namespace stowage::executor {

float Fp8Numbers::value(std::uint8_t code) const {
    const int magnitude = code & 0x7f;
    const int exponent = magnitude >> mantissa_bits;
    const auto mantissa = static_cast<float>(magnitude & ((1 << mantissa_bits) - 1));
    const auto unit = static_cast<float>(1 << mantissa_bits);
    const float size = exponent == 0 ? std::ldexp(mantissa / unit, 1 - exponent_bias)
                                     : std::ldexp(1 + mantissa / unit, exponent - exponent_bias);
    return (code & 0x80) != 0 ? -size : size;
}

std::uint8_t Fp8Numbers::code(float wanted) const {
    const float size = std::fabs(wanted);
    int above = 0;  // the first number that is not smaller, or the largest: codes rise with the numbers
    for (int last = largest_code; above < last;) {
        const int middle = (above + last) / 2;
        if (value(static_cast<std::uint8_t>(middle)) < size)
            above = middle + 1;
        else
            last = middle;
    }
    int best = above;
    if (above > 0) {
        const double up = static_cast<double>(value(static_cast<std::uint8_t>(above))) - static_cast<double>(size);
        const double down =
            static_cast<double>(size) - static_cast<double>(value(static_cast<std::uint8_t>(above - 1)));
        if (down < up || (down == up && above % 2 == 1)) best = above - 1;
    }
    return static_cast<std::uint8_t>(best | (std::signbit(wanted) ? 0x80 : 0));
}

Fp8Tensor to_fp8(const std::vector<float>& x, const Fp8Numbers& numbers) {
    float most = 0;
    for (const float one : x) most = std::max(most, std::fabs(one));
    Fp8Tensor tensor;
    tensor.factor = most > 0 ? numbers.largest() / most : 1.0F;
    tensor.inverse = 1.0F / tensor.factor;
    for (const float one : x) {
        tensor.codes.push_back(numbers.code(one * tensor.factor));
        tensor.values.push_back(static_cast<double>(numbers.value(tensor.codes.back())) *
                                static_cast<double>(tensor.inverse));
    }
    return tensor;
}

}  // namespace stowage::executor
