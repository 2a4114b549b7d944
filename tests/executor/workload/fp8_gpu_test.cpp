// Rounding to FP8 on a device, byte for byte, and products in it.

#include <cmath>
#include <limits>
#include <optional>

#include "scenarios/types/error.hpp"
#include "tests/executor/workload/fp8_reference.hpp"
#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Bytes = std::vector<std::uint8_t>;
using Doubles = std::vector<double>;

constexpr std::int64_t kWorkspace = 4 << 20;
constexpr std::int64_t kBehind = 512;  // bytes that must stay as they are

CallSizes matrix(std::int64_t rows, std::int64_t columns, bool e5m2 = false) {
    CallSizes sizes;
    sizes.rows = rows;
    sizes.columns = columns;
    sizes.e5m2 = e5m2;
    return sizes;
}

const Fp8Numbers& numbers_of(const CallSizes& sizes) { return sizes.e5m2 ? kE5m2 : kE4m3; }

Buffer filled(std::int64_t bytes) {
    const Bytes pattern(static_cast<std::size_t>(bytes), 0xa5);
    Buffer buffer(bytes);
    buffer.write(pattern);
    return buffer;
}

class Fp8 : public WorkloadGpu {
protected:
    /// What it stands for, and what is multiplied with.
    Buffer scales_of(const Buffer& x, const CallSizes& sizes) {
        Buffer scales = empty_fp32(2);
        CallSizes measured = sizes;
        measured.workspace_bytes = 4 * layers::norm_partials(sizes.rows);
        const Buffer partials = empty_fp32(layers::norm_partials(sizes.rows));
        run(Call::fp8_scale, measured, {&x, &scales, &partials});
        return scales;
    }

    /// A copy of x; the bytes behind it are checked.
    Buffer rounded(const Buffer& x, const Buffer& scales, CallSizes sizes, bool transposed) {
        (transposed ? sizes.transposed : sizes.plain) = true;
        Buffer copy = filled(sizes.rows * sizes.columns + kBehind);
        run(Call::fp8_quantize, sizes, {&x, &scales, &copy});
        return copy;
    }

    static void expect_bytes(const Buffer& copy, const Bytes& expected) {
        Bytes actual = copy.read<std::uint8_t>();
        ASSERT_EQ(actual.size(), expected.size() + kBehind);
        const Bytes behind(actual.end() - kBehind, actual.end());
        EXPECT_EQ(behind, Bytes(kBehind, 0xa5)) << "written behind the matrix";
        actual.resize(expected.size());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < actual.size(); ++i) {
            if (actual[i] == expected[i] || ++wrong > 3) continue;
            ADD_FAILURE() << "byte " << i << ": " << int{actual[i]} << ", expected " << int{expected[i]};
        }
        EXPECT_EQ(wrong, 0U) << "of " << actual.size();
    }

    void expect_rounded(const Values& x, const CallSizes& sizes) {
        const Fp8Tensor expected = to_fp8(x, numbers_of(sizes));
        const Buffer from = bf16_buffer(x);
        const Buffer scales = scales_of(from, sizes);
        EXPECT_EQ(scales.read<float>(), (Values{expected.inverse, expected.factor}));
        const Bytes turned = transposed(expected.codes, sizes.rows, sizes.columns);
        expect_bytes(rounded(from, scales, sizes, false), expected.codes);
        expect_bytes(rounded(from, scales, sizes, true), turned);
        CallSizes both = sizes;
        both.plain = both.transposed = true;
        const Buffer plain = filled(sizes.rows * sizes.columns + kBehind);
        const Buffer columns = filled(sizes.rows * sizes.columns + kBehind);
        run(Call::fp8_quantize, both, {&from, &scales, &plain, &columns});
        expect_bytes(plain, expected.codes);
        expect_bytes(columns, turned);
    }

    Values scales_of_values(Values x, bool e5m2 = false) {
        x.resize(256, 0.0F);
        const Buffer from = bf16_buffer(x);
        return scales_of(from, matrix(16, 16, e5m2)).read<float>();
    }
};

// Tiles are 128 x 64: none, one in part, whole ones, several with parts at both edges.
TEST_F(Fp8, RoundsEveryElementOfEveryShape) {
    for (const bool e5m2 : {false, true})
        for (const auto& [rows, columns] :
             {std::pair{16, 16}, {128, 64}, {144, 208}, {16, 336}, {400, 16}, {512, 1024}}) {
            SCOPED_TRACE(testing::Message() << rows << " x " << columns << (e5m2 ? " e5m2" : " e4m3"));
            expect_rounded(random_values(rows * columns, 11, 0.37F), matrix(rows, columns, e5m2));
        }
}

// Numbers over many powers of two, so that the smallest are rounded without a leading one, or to 0.
TEST_F(Fp8, RoundsSmallNumbersBesideLargeOnes) {
    Values x = random_values(64 * 96, 12);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = round_to_bf16(std::ldexp(x[i], -static_cast<int>(i % 37)));
    for (const bool e5m2 : {false, true}) expect_rounded(x, matrix(64, 96, e5m2));
}

TEST_F(Fp8, FindsTheLargestWhereverItIs) {
    for (const std::size_t place :
         {std::size_t{0}, std::size_t{7}, std::size_t{300 * 512}, std::size_t{528 * 512 - 1}}) {
        Values x = random_values(528 * 512, 13);
        x[place] = -96.0F;
        const Values scales = scales_of(bf16_buffer(x), matrix(528, 512)).read<float>();
        EXPECT_EQ(scales[1], 448.0F / 96.0F) << "at " << place;
    }
}

// Transformer Engine's rules: 1 for a tensor of zeros or with an infinity, and the largest float where the quotient is
// beyond it: 448 / 2^-133 = 2^141.8.
TEST_F(Fp8, HasAScaleForEveryTensor) {
    constexpr float kMost = std::numeric_limits<float>::max();
    EXPECT_EQ(scales_of_values({}), (Values{1.0F, 1.0F}));
    EXPECT_EQ(scales_of_values({-std::numeric_limits<float>::infinity()}), (Values{1.0F, 1.0F}));
    EXPECT_EQ(scales_of_values({std::ldexp(1.0F, -133)}), (Values{1.0F / kMost, kMost}));
    EXPECT_EQ(scales_of_values({4.0F}, true), (Values{1.0F / 14336, 14336.0F}));
}

// 3 * 200 is beyond 448; a NaN stays one in either format.
TEST_F(Fp8, StaysWithinTheFormatAndKeepsNotANumber) {
    Values x(256, 3.0F);
    x[1] = -3.0F;
    x[2] = std::numeric_limits<float>::quiet_NaN();
    const Buffer scales = fp32_buffer({1.0F / 200, 200.0F});
    const Bytes codes = rounded(bf16_buffer(x), scales, matrix(16, 16), false).read<std::uint8_t>();
    EXPECT_EQ(codes[0], 0x7e);
    EXPECT_EQ(codes[1], 0xfe);
    EXPECT_EQ(codes[2] & 0x7f, 0x7f);
    const Bytes wide = rounded(bf16_buffer(x), scales, matrix(16, 16, true), false).read<std::uint8_t>();
    EXPECT_EQ(wide[0], kE5m2.code(600.0F));
    EXPECT_GT(wide[2] & 0x7f, 0x7c);
}

TEST_F(Fp8, RefusesRowsAndColumnsThatAreNoMultiplesOf16) {
    CallSizes sizes = matrix(24, 32);
    sizes.plain = true;
    const CallShape shape{Call::fp8_quantize, sizes};
    EXPECT_THROW(workload().prepare({&shape, 1}), types::UnsupportedError);
    sizes = matrix(32, 32);
    sizes.depth = 40;
    const CallShape product{Call::fp8_linear_forward, sizes};
    EXPECT_THROW(workload().prepare({&product, 1}), types::UnsupportedError);
}

// ------------------------------------------------------------------------------------------------------------ products

/// A linear layer whose factors are rounded on the host; see Fp8Tensor.
struct Linear {
    Linear(std::int64_t rows, std::int64_t columns, std::int64_t depth)
        : a(to_fp8(random_values(rows * depth, 21), kE4m3)),
          weight(to_fp8(random_values(columns * depth, 22, 0.02F), kE4m3)),
          dy(to_fp8(random_values(rows * columns, 23, 1e-4F), kE5m2)),
          bias(random_values(columns, 24)),
          addend(random_values(rows * columns, 25)),
          before(random_values(columns * depth, 26, 1e-3F)) {
        sizes.rows = rows;
        sizes.columns = columns;
        sizes.depth = depth;
        sizes.workspace_bytes = kWorkspace;
    }

    CallSizes sizes;
    Fp8Tensor a;
    Fp8Tensor weight;
    Fp8Tensor dy;
    Values bias;
    Values addend;
    Values before;
};

/// sum over k of left[i k] right[j k], both row by row.
Doubles product(const Doubles& left, const Doubles& right, std::int64_t rows, std::int64_t columns,
                std::int64_t depth) {
    Doubles result;
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
            double sum = 0;
            for (std::int64_t k = 0; k < depth; ++k)
                sum += left[static_cast<std::size_t>(i * depth + k)] * right[static_cast<std::size_t>(j * depth + k)];
            result.push_back(sum);
        }
    }
    return result;
}

Doubles y_of(const Linear& linear) {
    const CallSizes& s = linear.sizes;
    Doubles y = product(linear.a.values, linear.weight.values, s.rows, s.columns, s.depth);
    for (std::size_t i = 0; i < y.size(); ++i) {
        if (s.has_bias) y[i] += static_cast<double>(linear.bias[i % static_cast<std::size_t>(s.columns)]);
        if (s.has_addend) y[i] += static_cast<double>(linear.addend[i]);
    }
    return y;
}

Doubles da_of(const Linear& linear) {
    const CallSizes& s = linear.sizes;
    return product(linear.dy.values, transposed(linear.weight.values, s.columns, s.depth), s.rows, s.depth, s.columns);
}

Doubles d_weight_of(const Linear& linear) {
    const CallSizes& s = linear.sizes;
    Doubles d = product(transposed(linear.dy.values, s.rows, s.columns), transposed(linear.a.values, s.rows, s.depth),
                        s.columns, s.depth, s.rows);
    for (std::size_t i = 0; i < d.size(); ++i) d[i] += static_cast<double>(linear.before[i]);
    return d;
}

Buffer byte_buffer(const Bytes& bytes) {
    Buffer buffer(static_cast<std::int64_t>(bytes.size()));
    buffer.write(bytes);
    return buffer;
}

Buffer scale_buffer(const Fp8Tensor& tensor) { return fp32_buffer({tensor.inverse, tensor.factor}); }

// Results are rounded to bf16, half a unit of which is 2^-9 of the value; 2^-8 leaves as much again. The tensor cores
// keep some 14 bits of a running sum, so that besides a hundredth of what sums are like counts: y up to 0.02 sqrt(1024)
// = 0.64, da some 1e-4 x 0.02 sqrt(144) = 2.4e-5, the weight's gradient some 1e-4 sqrt(96) = 1e-3.
constexpr double kRelative = 1.0 / 256;
constexpr double kOutputSums = 1e-2;
constexpr double kInputGradientSums = 2e-6;
constexpr double kWeightGradientSums = 1e-5;

class Fp8Gemm : public Fp8 {
protected:
    void expect_forward(const Linear& linear) {
        const Buffer a = byte_buffer(linear.a.codes);
        const Buffer weight = byte_buffer(linear.weight.codes);
        const Buffer a_scales = scale_buffer(linear.a);
        const Buffer weight_scales = scale_buffer(linear.weight);
        const Buffer bias = bf16_buffer(linear.bias);
        const Buffer addend = bf16_buffer(linear.addend);
        const Buffer y = empty_bf16(linear.sizes.rows * linear.sizes.columns);
        std::vector<const Buffer*> operands = {&a, &a_scales, &weight, &weight_scales};
        if (linear.sizes.has_bias) operands.push_back(&bias);
        if (linear.sizes.has_addend) operands.push_back(&addend);
        operands.push_back(&y);
        operands.push_back(&workspace());
        run(Call::fp8_linear_forward, linear.sizes, operands);
        expect_close(y.read_bf16(), y_of(linear), kRelative, kOutputSums);
    }
    void expect_input_gradient(const Linear& linear) {
        const CallSizes& s = linear.sizes;
        const Buffer dy = byte_buffer(linear.dy.codes);
        const Buffer weight = byte_buffer(transposed(linear.weight.codes, s.columns, s.depth));
        const Buffer dy_scales = scale_buffer(linear.dy);
        const Buffer weight_scales = scale_buffer(linear.weight);
        const Buffer da = empty_bf16(s.rows * s.depth);
        run(Call::fp8_linear_input_gradient, s, {&dy, &dy_scales, &weight, &weight_scales, &da, &workspace()});
        expect_close(da.read_bf16(), da_of(linear), kRelative, kInputGradientSums);
    }
    [[nodiscard]] Buffer weight_gradient(const Linear& linear) {
        const CallSizes& s = linear.sizes;
        const Buffer dy = byte_buffer(transposed(linear.dy.codes, s.rows, s.columns));
        const Buffer a = byte_buffer(transposed(linear.a.codes, s.rows, s.depth));
        const Buffer dy_scales = scale_buffer(linear.dy);
        const Buffer a_scales = scale_buffer(linear.a);
        Buffer d_weight = gradient_buffer(linear.before, s.gradient_type);
        run(Call::fp8_linear_weight_gradient, s, {&dy, &dy_scales, &a, &a_scales, &d_weight, &workspace()});
        return d_weight;
    }
    [[nodiscard]] const Buffer& workspace() {
        if (!workspace_) workspace_.emplace(kWorkspace);
        return *workspace_;
    }

private:
    std::optional<Buffer> workspace_;
};

TEST_F(Fp8Gemm, ComputesALinearLayerWithAndWithoutBiasAndAddend) {
    for (const bool bias : {false, true}) {
        for (const bool addend : {false, true}) {
            Linear linear(48, 144, 80);
            linear.sizes.has_bias = bias;
            linear.sizes.has_addend = addend;
            SCOPED_TRACE(testing::Message() << "bias " << bias << ", addend " << addend);
            expect_forward(linear);
        }
    }
    expect_forward(Linear(16, 16, 16));
    expect_forward(Linear(272, 512, 1024));
}

TEST_F(Fp8Gemm, ComputesTheGradientOfItsInput) {
    expect_input_gradient(Linear(48, 144, 80));
    expect_input_gradient(Linear(272, 512, 256));
}

TEST_F(Fp8Gemm, AddsGradientsOfTheWeightInEitherType) {
    for (const auto type : {types::DataType::bf16, types::DataType::fp32}) {
        Linear linear(96, 144, 80);
        linear.sizes.gradient_type = type;
        const Buffer d_weight = weight_gradient(linear);
        const double rounding = type == types::DataType::bf16 ? 2e-5 : 0;  // the product, before it is added
        expect_close(d_weight.read_as(type), d_weight_of(linear), kRelative, kWeightGradientSums + rounding);
    }
}

TEST_F(Fp8Gemm, GivesTheSameBitsEveryTime) {
    const Linear linear(1024, 256, 512);
    const std::uint64_t first = weight_gradient(linear).digest();
    for (int round = 0; round < 4; ++round) EXPECT_EQ(weight_gradient(linear).digest(), first);
}

}  // namespace
}  // namespace stowage::executor
