#include <cmath>

#include "scenarios/types/error.hpp"
#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Doubles = std::vector<double>;

constexpr double kEpsilon = 1e-5;

struct Case {
    std::int64_t rows;
    std::int64_t columns;
    bool layer_norm;
    types::DataType gradient = types::DataType::fp32;
    bool residual = true;
};

/// One thread's access, a partly filled block, each of the kernels' sizes, and more rows than there are partial sums.
const std::vector<Case> kCases = {{1, 8, false},
                                  {3, 8, true},
                                  {5, 1000, false},
                                  {600, 1032, true},
                                  {9, 4096, false, types::DataType::bf16},
                                  {7, 4096, true, types::DataType::bf16, false},
                                  {4, 8184, false},
                                  {3, 16384, false},
                                  {2, 16384, true}};

CallSizes sizes_of(const Case& one) {
    CallSizes sizes;
    sizes.rows = one.rows;
    sizes.columns = one.columns;
    sizes.layer_norm = one.layer_norm;
    sizes.value = kEpsilon;
    sizes.gradient_type = one.gradient;
    sizes.has_addend = one.residual;
    return sizes;
}

/// What the kernels are given, and what they should give, in double.
struct Reference {
    explicit Reference(const Case& one);
    Values x;
    Values weight;
    Values bias;
    Values dy;
    Values residual;
    Doubles y;
    Doubles rstd;
    Doubles mean;
    Doubles dx;
    Doubles d_weight;  // without what was there before
    Doubles d_bias;
};

void statistics(Reference& all, const Case& one, std::size_t row) {
    const auto columns = static_cast<std::size_t>(one.columns);
    double mean = 0;
    for (std::size_t c = 0; c < columns && one.layer_norm; ++c) mean += static_cast<double>(all.x[row * columns + c]);
    mean /= static_cast<double>(columns);
    double squares = 0;
    for (std::size_t c = 0; c < columns; ++c) {
        const double centred = static_cast<double>(all.x[row * columns + c]) - mean;
        squares += centred * centred;
    }
    all.mean[row] = mean;
    all.rstd[row] = 1.0 / std::sqrt(squares / static_cast<double>(columns) + kEpsilon);
}

void forward_and_backward(Reference& all, const Case& one, std::size_t row) {
    const auto columns = static_cast<std::size_t>(one.columns);
    double mean_g = 0;
    double mean_gx = 0;
    const auto normal = [&](std::size_t c) {
        return (static_cast<double>(all.x[row * columns + c]) - all.mean[row]) * all.rstd[row];
    };
    const auto g = [&](std::size_t c) {
        return static_cast<double>(all.dy[row * columns + c]) * static_cast<double>(all.weight[c]);
    };
    for (std::size_t c = 0; c < columns; ++c) {
        mean_g += g(c) / static_cast<double>(columns);
        mean_gx += g(c) * normal(c) / static_cast<double>(columns);
        all.d_weight[c] += static_cast<double>(all.dy[row * columns + c]) * normal(c);
        all.d_bias[c] += static_cast<double>(all.dy[row * columns + c]);
        const double shift = one.layer_norm ? static_cast<double>(all.bias[c]) : 0.0;
        all.y[row * columns + c] = normal(c) * static_cast<double>(all.weight[c]) + shift;
    }
    for (std::size_t c = 0; c < columns; ++c) {
        const double centred = g(c) - (one.layer_norm ? mean_g : 0.0) - normal(c) * mean_gx;
        const double residual = one.residual ? static_cast<double>(all.residual[row * columns + c]) : 0.0;
        all.dx[row * columns + c] = all.rstd[row] * centred + residual;
    }
}

Reference::Reference(const Case& one)
    : x(random_values(one.rows * one.columns, 1, 2.0F)),
      weight(random_values(one.columns, 2)),
      bias(random_values(one.columns, 3)),
      dy(random_values(one.rows * one.columns, 4)),
      residual(random_values(one.rows * one.columns, 5)),
      y(x.size()),
      rstd(static_cast<std::size_t>(one.rows)),
      mean(rstd.size()),
      dx(x.size()),
      d_weight(weight.size()),
      d_bias(weight.size()) {
    for (std::size_t row = 0; row < rstd.size(); ++row) {
        statistics(*this, one, row);
        forward_and_backward(*this, one, row);
    }
}

Values as_floats(const Doubles& values) { return {values.begin(), values.end()}; }

class Norm : public WorkloadGpu {
protected:
    void expect_forward(const Case& one) {
        const Reference all(one);
        const Buffer x = bf16_buffer(all.x);
        const Buffer weight = bf16_buffer(all.weight);
        const Buffer bias = bf16_buffer(all.bias);
        const Buffer y = empty_bf16(one.rows * one.columns);
        const Buffer rstd = empty_fp32(one.rows);
        const Buffer mean = empty_fp32(one.rows);
        if (one.layer_norm) {
            run(Call::norm_forward, sizes_of(one), {&x, &weight, &bias, &y, &rstd, &mean});
            expect_close(mean.read<float>(), all.mean, 1e-5, 1e-5);
        } else {
            run(Call::norm_forward, sizes_of(one), {&x, &weight, &y, &rstd});
        }
        expect_close(y.read_bf16(), all.y);
        expect_close(rstd.read<float>(), all.rstd, 1e-5, 0);
    }

    void expect_backward(const Case& one) {
        const Reference all(one);
        const Buffer x = bf16_buffer(all.x);
        const Buffer weight = bf16_buffer(all.weight);
        const Buffer rstd = fp32_buffer(as_floats(all.rstd));
        const Buffer mean = fp32_buffer(as_floats(all.mean));
        const Buffer dy = bf16_buffer(all.dy);
        const Buffer residual = bf16_buffer(all.residual);
        const Buffer dx = empty_bf16(one.rows * one.columns);
        const Values before = random_values(one.columns, 6);
        const Buffer d_weight = gradient_buffer(before, one.gradient);
        const Buffer d_bias = gradient_buffer(before, one.gradient);
        const Buffer workspace = empty_fp32(2 * layers::norm_partials(one.rows) * one.columns);
        std::vector<const Buffer*> operands = {&x, &weight, &rstd};
        if (one.layer_norm) operands.push_back(&mean);
        operands.push_back(&dy);
        if (one.residual) operands.push_back(&residual);
        operands.push_back(&dx);
        operands.push_back(&d_weight);
        if (one.layer_norm) operands.push_back(&d_bias);
        operands.push_back(&workspace);
        run(Call::norm_backward, sizes_of(one), operands);
        expect_close(dx.read_bf16(), all.dx, 1.0 / 256, 2e-3);
        expect_gradient(d_weight, one, before, all.d_weight);
        if (one.layer_norm) expect_gradient(d_bias, one, before, all.d_bias);
    }

private:
    static void expect_gradient(const Buffer& buffer, const Case& one, const Values& before, const Doubles& added) {
        Doubles expected;
        for (std::size_t c = 0; c < added.size(); ++c) expected.push_back(static_cast<double>(before[c]) + added[c]);
        const bool fp32 = one.gradient == types::DataType::fp32;
        expect_close(buffer.read_as(one.gradient), expected, fp32 ? 1e-4 : 1.0 / 256, 1e-3);
    }
};

TEST_F(Norm, NormalisesEachRow) {
    for (const Case& one : kCases) {
        SCOPED_TRACE(testing::Message() << one.rows << " x " << one.columns
                                        << (one.layer_norm ? " LayerNorm" : " RMSNorm"));
        expect_forward(one);
    }
}

TEST_F(Norm, GivesTheGradientsOfInputWeightAndBias) {
    for (const Case& one : kCases) {
        SCOPED_TRACE(testing::Message() << one.rows << " x " << one.columns
                                        << (one.layer_norm ? " LayerNorm" : " RMSNorm"));
        expect_backward(one);
    }
}

TEST_F(Norm, GivesTheSameGradientsEveryTime) {
    const Case one{1000, 1024, false};
    const Reference all(one);
    const Buffer x = bf16_buffer(all.x);
    const Buffer weight = bf16_buffer(all.weight);
    const Buffer rstd = fp32_buffer(as_floats(all.rstd));
    const Buffer dy = bf16_buffer(all.dy);
    const Buffer residual = bf16_buffer(all.residual);
    const Buffer workspace = empty_fp32(layers::norm_partials(one.rows) * one.columns);
    std::vector<std::uint64_t> digests;
    for (int round = 0; round < 3; ++round) {
        const Buffer dx = empty_bf16(one.rows * one.columns);
        const Buffer gradient = fp32_buffer(Values(1024, 0.0F));
        run(Call::norm_backward, sizes_of(one), {&x, &weight, &rstd, &dy, &residual, &dx, &gradient, &workspace});
        digests.push_back(gradient.digest());
        digests.push_back(dx.digest());
    }
    EXPECT_EQ(digests[0], digests[2]);
    EXPECT_EQ(digests[0], digests[4]);
    EXPECT_EQ(digests[1], digests[3]);
    EXPECT_EQ(digests[1], digests[5]);
}

TEST_F(Norm, SumsTheColumnsOfABias) {
    for (const std::int64_t rows : {1, 300, 1500}) {
        const std::int64_t columns = 2056;  // a block's slice and one access more
        const Values dy = random_values(rows * columns, 8);
        const Values before = random_values(columns, 9);
        Doubles expected(before.begin(), before.end());
        for (std::size_t i = 0; i < dy.size(); ++i) expected[i % expected.size()] += static_cast<double>(dy[i]);
        const Buffer dy_buffer = bf16_buffer(dy);
        const Buffer gradient = fp32_buffer(before);
        const Buffer workspace = empty_fp32(layers::norm_partials(rows) * columns);
        CallSizes sizes;
        sizes.rows = rows;
        sizes.columns = columns;
        sizes.gradient_type = types::DataType::fp32;
        run(Call::bias_gradient, sizes, {&dy_buffer, &gradient, &workspace});
        expect_close(gradient.read<float>(), expected, 1e-5, 1e-3);
    }
}

TEST_F(Norm, RefusesRowsThatItsKernelsDoNotTake) {
    CallShape odd{Call::norm_forward, sizes_of({4, 12, false})};
    EXPECT_THROW(workload().prepare({&odd, 1}), types::UnsupportedError);
    CallShape wide{Call::norm_forward, sizes_of({4, 16392, false})};
    EXPECT_THROW(workload().prepare({&wide, 1}), types::UnsupportedError);
}

}  // namespace
}  // namespace stowage::executor
