// Linears in FP8 with factors as tensors of hidden states have them once scaled: numbers spread over the range below
// the format's largest, since power depends on them.

#include <fmt/core.h>

#include <array>
#include <bit>
#include <cstring>

#include "benchmarks/executor/workload/benchmark_line.hpp"
#include "executor/workload/random.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using types::DataType;
using Integers = std::vector<std::int32_t>;

constexpr std::int64_t kTokens = 4096;

/// Uniform between minus and plus the largest number: half of them within the highest power of two, and so on down.
std::uint8_t code_of(std::uint32_t bits, bool e5m2) {
    const int mantissa_bits = e5m2 ? 2 : 3;
    const int highest = e5m2 ? 30 : 15;
    const int below = std::countl_zero(bits | 0x10000U);  // at most 15
    const int exponent = highest - below > 0 ? highest - below : 0;
    int mantissa = static_cast<int>(bits & ((1U << mantissa_bits) - 1));
    if (!e5m2 && exponent == highest && mantissa == 7) mantissa = 6;  // the code of NaN
    const int sign = (bits & 0x10U) != 0 ? 0x80 : 0;
    return static_cast<std::uint8_t>(sign | (exponent << mantissa_bits) | mantissa);
}

Integers codes(std::int64_t bytes, bool e5m2) {
    Integers result;
    result.reserve(static_cast<std::size_t>(bytes / 4));
    for (std::int64_t i = 0; i < bytes / 4; ++i) {
        std::array<std::uint8_t, 4> four{};
        for (std::size_t j = 0; j < four.size(); ++j) {
            const std::uint64_t word = random_word(e5m2 ? 2 : 1, static_cast<std::uint64_t>(4 * i) + j);
            four.at(j) = code_of(static_cast<std::uint32_t>(word >> 32), e5m2);
        }
        std::int32_t packed = 0;
        std::memcpy(&packed, four.data(), sizeof packed);
        result.push_back(packed);
    }
    return result;
}

Integers scales(bool e5m2) {
    const float largest = e5m2 ? 57344.0F : 448.0F;
    return {std::bit_cast<std::int32_t>(1 / largest), std::bit_cast<std::int32_t>(largest)};
}

CallSizes linear(std::int64_t columns, std::int64_t depth) {
    CallSizes sizes = matrix(kTokens, columns);
    sizes.depth = depth;
    sizes.workspace_bytes = kWorkspace;
    return sizes;
}

/// Of FP8 factors of so many bytes, and what else the call takes; `gradient`: the first one is.
Line product(const std::string& name, Call call, const CallSizes& sizes, std::vector<std::int64_t> buffers,
             bool gradient) {
    const double flops =
        2.0 * static_cast<double>(sizes.rows) * static_cast<double>(sizes.columns) * static_cast<double>(sizes.depth);
    Line line{name, call, sizes, std::move(buffers), 0, flops};
    line.integers.resize(line.buffer_bytes.size());
    line.integers[0] = codes(line.buffer_bytes[0], gradient);
    line.integers[1] = scales(gradient);
    line.integers[2] = codes(line.buffer_bytes[2], false);
    line.integers[3] = scales(false);
    return line;
}

void add_linear(std::vector<Line>& lines, const std::string& name, std::int64_t columns, std::int64_t depth) {
    const CallSizes sizes = linear(columns, depth);
    const std::int64_t a = kTokens * depth;
    const std::int64_t weight = columns * depth;
    const std::int64_t y = kTokens * columns;
    lines.push_back(product("FP8 " + name + " forward", Call::fp8_linear_forward, sizes,
                            {a, 8, weight, 8, 2 * y, kWorkspace}, false));
    lines.push_back({"bf16 " + name + " forward",
                     Call::linear_forward,
                     sizes,
                     {2 * a, 2 * weight, 2 * y, kWorkspace},
                     0,
                     lines.back().flops});
    lines.push_back(product("FP8 " + name + " input gradient", Call::fp8_linear_input_gradient, sizes,
                            {y, 8, weight, 8, 2 * a, kWorkspace}, true));
    lines.push_back(product("FP8 " + name + " weight gradient, bf16", Call::fp8_linear_weight_gradient, sizes,
                            {y, 8, a, 8, 2 * weight, kWorkspace}, true));
    CallSizes wide = sizes;
    wide.gradient_type = DataType::fp32;
    lines.push_back(product("FP8 " + name + " weight gradient, fp32", Call::fp8_linear_weight_gradient, wide,
                            {y, 8, a, 8, 4 * weight, kWorkspace}, true));
}

void add_conversions(std::vector<Line>& lines, std::int64_t rows, std::int64_t columns) {
    const std::int64_t elements = rows * columns;
    const std::int64_t partials = 4 * layers::norm_partials(rows);
    const std::string shape = fmt::format(", {} x {}", rows, columns);
    lines.push_back(memory_line("FP8 scale" + shape, Call::fp8_scale, matrix(rows, columns),
                                {2 * elements, 8, partials}, 2 * elements));
    CallSizes sizes = matrix(rows, columns);
    sizes.plain = true;
    const auto add = [&](const char* what, std::vector<std::int64_t> buffers, std::int64_t copies) {
        Line line = memory_line(what + shape, Call::fp8_quantize, sizes, std::move(buffers), (2 + copies) * elements);
        line.integers.resize(line.buffer_bytes.size());
        line.integers[1] = scales(false);
        lines.push_back(std::move(line));
    };
    add("FP8 copy", {2 * elements, 8, elements}, 1);
    sizes.transposed = true;
    add("FP8 copy and its transpose", {2 * elements, 8, elements, elements}, 2);
    sizes.plain = false;
    add("transposed FP8 copy", {2 * elements, 8, elements}, 1);
}

}  // namespace

std::vector<Line> fp8_lines() {
    std::vector<Line> lines;
    add_conversions(lines, kTokens, 4096);
    add_conversions(lines, kTokens, 28672);
    add_linear(lines, "QKV 12288 x 4096", 12288, 4096);
    add_linear(lines, "projection 4096 x 4096", 4096, 4096);
    add_linear(lines, "fc1 28672 x 4096", 28672, 4096);
    add_linear(lines, "fc2 4096 x 14336", 4096, 14336);
    return lines;
}

}  // namespace stowage::executor
