#include <unistd.h>

#include <filesystem>

#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Doubles = std::vector<double>;

constexpr std::int64_t kWorkspace = 4 << 20;

CallSizes sizes_of(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    CallSizes sizes;
    sizes.rows = rows;
    sizes.columns = columns;
    sizes.depth = depth;
    sizes.workspace_bytes = kWorkspace;
    return sizes;
}

/// The matrices of one linear layer on the host.
struct Linear {
    explicit Linear(const CallSizes& s)
        : sizes(s),
          a(random_values(s.rows * s.depth, 1)),
          weight(random_values(s.columns * s.depth, 2)),
          bias(random_values(s.columns, 3)),
          addend(random_values(s.rows * s.columns, 4)),
          dy(random_values(s.rows * s.columns, 5)),
          before(random_values(s.columns * s.depth, 6)) {}
    [[nodiscard]] Doubles y() const;
    [[nodiscard]] Doubles da() const;
    [[nodiscard]] Doubles d_weight() const;

    CallSizes sizes;
    Values a;
    Values weight;
    Values bias;
    Values addend;
    Values dy;
    Values before;  ///< the weight gradient that is added to
};

double element(const Values& matrix, std::int64_t row, std::int64_t column, std::int64_t columns) {
    return static_cast<double>(matrix[static_cast<std::size_t>(row * columns + column)]);
}

Doubles Linear::y() const {
    Doubles result;
    for (std::int64_t t = 0; t < sizes.rows; ++t) {
        for (std::int64_t c = 0; c < sizes.columns; ++c) {
            double sum = sizes.has_bias ? static_cast<double>(bias[static_cast<std::size_t>(c)]) : 0.0;
            if (sizes.has_addend) sum += element(addend, t, c, sizes.columns);
            for (std::int64_t k = 0; k < sizes.depth; ++k)
                sum += element(a, t, k, sizes.depth) * element(weight, c, k, sizes.depth);
            result.push_back(sum);
        }
    }
    return result;
}

Doubles Linear::da() const {
    Doubles result;
    for (std::int64_t t = 0; t < sizes.rows; ++t) {
        for (std::int64_t k = 0; k < sizes.depth; ++k) {
            double sum = 0;
            for (std::int64_t c = 0; c < sizes.columns; ++c)
                sum += element(dy, t, c, sizes.columns) * element(weight, c, k, sizes.depth);
            result.push_back(sum);
        }
    }
    return result;
}

Doubles Linear::d_weight() const {
    Doubles result;
    for (std::int64_t c = 0; c < sizes.columns; ++c) {
        for (std::int64_t k = 0; k < sizes.depth; ++k) {
            double sum = element(before, c, k, sizes.depth);
            for (std::int64_t t = 0; t < sizes.rows; ++t)
                sum += element(dy, t, c, sizes.columns) * element(a, t, k, sizes.depth);
            result.push_back(sum);
        }
    }
    return result;
}

class Gemm : public WorkloadGpu {
protected:
    void expect_forward(const Linear& linear) {
        const Buffer a = bf16_buffer(linear.a);
        const Buffer weight = bf16_buffer(linear.weight);
        const Buffer bias = bf16_buffer(linear.bias);
        const Buffer addend = bf16_buffer(linear.addend);
        const Buffer y = empty_bf16(linear.sizes.rows * linear.sizes.columns);
        std::vector<const Buffer*> operands = {&a, &weight};
        if (linear.sizes.has_bias) operands.push_back(&bias);
        if (linear.sizes.has_addend) operands.push_back(&addend);
        operands.push_back(&y);
        operands.push_back(&workspace());
        run(Call::linear_forward, linear.sizes, operands);
        expect_close(y.read_bf16(), linear.y(), 1.0 / 256, 2e-3);
        EXPECT_EQ(addend.read_bf16(), linear.addend) << "what is added is only read";
    }
    void expect_gradients(const Linear& linear) {
        const Buffer dy = bf16_buffer(linear.dy);
        const Buffer weight = bf16_buffer(linear.weight);
        const Buffer a = bf16_buffer(linear.a);
        const Buffer da = empty_bf16(linear.sizes.rows * linear.sizes.depth);
        run(Call::linear_input_gradient, linear.sizes, {&dy, &weight, &da, &workspace()});
        expect_close(da.read_bf16(), linear.da(), 1.0 / 256, 2e-3);
        const auto type = linear.sizes.gradient_type;
        const Buffer d_weight = gradient_buffer(linear.before, type);
        run(Call::linear_weight_gradient, linear.sizes, {&dy, &a, &d_weight, &workspace()});
        // Some kernels round the product to bf16 before they add it: half a unit of a number below 32 is 1/16.
        const bool fp32 = type == types::DataType::fp32;
        expect_close(d_weight.read_as(type), linear.d_weight(), fp32 ? 1e-4 : 1.0 / 256, fp32 ? 1e-4 : 0.0645);
    }
    [[nodiscard]] const Buffer& workspace() {
        if (!workspace_) workspace_.emplace(kWorkspace);
        return *workspace_;
    }

private:
    std::optional<Buffer> workspace_;
};

TEST_F(Gemm, ComputesALinearLayerWithAndWithoutBiasAndAddend) {
    for (const bool bias : {false, true}) {
        for (const bool addend : {false, true}) {
            CallSizes sizes = sizes_of(48, 136, 72);
            sizes.has_bias = bias;
            sizes.has_addend = addend;
            SCOPED_TRACE(testing::Message() << "bias " << bias << ", addend " << addend);
            expect_forward(Linear(sizes));
        }
    }
    expect_forward(Linear(sizes_of(1, 8, 8)));
}

TEST_F(Gemm, AddsGradientsInEitherType) {
    for (const auto type : {types::DataType::bf16, types::DataType::fp32}) {
        CallSizes sizes = sizes_of(40, 72, 136);
        sizes.gradient_type = type;
        expect_gradients(Linear(sizes));
    }
}

TEST_F(Gemm, GivesTheSameBitsEveryTime) {
    const CallSizes sizes = sizes_of(1024, 256, 512);  // deep enough that splitting the sum pays
    const Linear linear(sizes);
    const Buffer dy = bf16_buffer(linear.dy);
    const Buffer a = bf16_buffer(linear.a);
    std::vector<std::uint64_t> digests;
    for (int round = 0; round < 5; ++round) {
        const Buffer d_weight = bf16_buffer(linear.before);
        run(Call::linear_weight_gradient, sizes, {&dy, &a, &d_weight, &workspace()});
        digests.push_back(d_weight.digest());
    }
    EXPECT_EQ(digests, std::vector<std::uint64_t>(5, digests[0]));
}

TEST_F(Gemm, RefusesAProductThatWasNotPrepared) {
    const CallSizes sizes = sizes_of(16, 16, 24);
    std::vector<void*> pointers(4, nullptr);
    EXPECT_THROW(workload().launch(Call::linear_forward, sizes, pointers, stream().get(), {}), std::logic_error);
}

TEST_F(Gemm, UsesTheTableOfTheRunBefore) {
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / ("stowage-gpu-gemms-" + std::to_string(getpid()) + ".json");
    std::filesystem::remove(file);
    const CallShape shape{Call::linear_forward, sizes_of(256, 512, 128)};
    Workload first({.device = 0, .gemm_table = file, .seed = 1});
    first.prepare({&shape, 1});
    EXPECT_EQ(read_gemm_table(file), first.gemm_table());
    Workload second({.device = 0, .gemm_table = file, .seed = 1});
    second.prepare({&shape, 1});
    EXPECT_EQ(second.gemm_table(), first.gemm_table()) << "measured times would differ, had it measured again";
    std::filesystem::remove(file);
}

}  // namespace
}  // namespace stowage::executor
