#include <cstddef>

#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Doubles = std::vector<double>;

constexpr std::int64_t kWorkspace = 4 << 20;
constexpr std::int64_t kExperts = 3;
constexpr std::int64_t kColumns = 40;
constexpr std::int64_t kDepth = 72;

CallSizes sizes_of(std::int64_t rows, types::DataType gradient_type) {
    CallSizes sizes;
    sizes.rows = rows;
    sizes.columns = kColumns;
    sizes.depth = kDepth;
    sizes.experts = kExperts;
    sizes.workspace_bytes = kWorkspace;
    sizes.gradient_type = gradient_type;
    return sizes;
}

std::size_t place(std::int64_t row, std::int64_t column, std::int64_t columns) {
    return static_cast<std::size_t>(row * columns + column);
}

/// Matrices of the experts on the host, and what the three calls give.
struct Grouped {
    explicit Grouped(const CallSizes& s)
        : a(random_values(s.rows * kDepth, 1)),
          weight(random_values(kExperts * kColumns * kDepth, 2)),
          dy(random_values(s.rows * kColumns, 3)),
          before(random_values(kExperts * kColumns * kDepth, 4)),
          y(static_cast<std::size_t>(s.rows * kColumns)),
          da(static_cast<std::size_t>(s.rows * kDepth)),
          d_weight(before.begin(), before.end()) {
        for (std::int64_t e = 0; e < kExperts; ++e) {
            for (std::int64_t t = e * s.rows / kExperts; t < (e + 1) * s.rows / kExperts; ++t) add_row(t, e * kColumns);
        }
    }
    void add_row(std::int64_t t, std::int64_t first_column) {
        for (std::int64_t c = 0; c < kColumns; ++c) {
            for (std::int64_t k = 0; k < kDepth; ++k) {
                const auto input = static_cast<double>(a[place(t, k, kDepth)]);
                const auto factor = static_cast<double>(weight[place(first_column + c, k, kDepth)]);
                const auto gradient = static_cast<double>(dy[place(t, c, kColumns)]);
                y[place(t, c, kColumns)] += input * factor;
                da[place(t, k, kDepth)] += gradient * factor;
                d_weight[place(first_column + c, k, kDepth)] += gradient * input;
            }
        }
    }
    Values a;
    Values weight;
    Values dy;
    Values before;
    Doubles y;
    Doubles da;
    Doubles d_weight;
};

class GroupedGemm : public WorkloadGpu {};

TEST_F(GroupedGemm, ComputesEachExpertsRowsWithItsOwnWeights) {
    const Buffer workspace(kWorkspace);
    // As many rows an expert; different ones; fewer than experts, so that one has none.
    for (const std::int64_t rows : {48, 50, 2}) {
        for (const auto type : {types::DataType::bf16, types::DataType::fp32}) {
            SCOPED_TRACE(testing::Message() << rows << " rows, gradients in " << types::name_of(type));
            const CallSizes sizes = sizes_of(rows, type);
            const Grouped grouped(sizes);
            const Buffer a = bf16_buffer(grouped.a);
            const Buffer weight = bf16_buffer(grouped.weight);
            const Buffer dy = bf16_buffer(grouped.dy);
            const Buffer y = empty_bf16(rows * kColumns);
            run(Call::grouped_linear_forward, sizes, {&a, &weight, &y, &workspace});
            expect_close(y.read_bf16(), grouped.y, 1.0 / 256, 2e-3);
            const Buffer da = empty_bf16(rows * kDepth);
            run(Call::grouped_linear_input_gradient, sizes, {&dy, &weight, &da, &workspace});
            expect_close(da.read_bf16(), grouped.da, 1.0 / 256, 2e-3);
            const Buffer d_weight = gradient_buffer(grouped.before, type);
            run(Call::grouped_linear_weight_gradient, sizes, {&dy, &a, &d_weight, &workspace});
            // Some kernels round the product to bf16 before they add it: half a unit of a number below 32 is 1/16.
            const bool fp32 = type == types::DataType::fp32;
            expect_close(d_weight.read_as(type), grouped.d_weight, fp32 ? 1e-4 : 1.0 / 256, fp32 ? 1e-4 : 0.0645);
        }
    }
}

TEST_F(GroupedGemm, GivesTheSameBitsEveryTime) {
    const Buffer workspace(kWorkspace);
    for (const std::int64_t rows : {1024, 1026}) {  // 341 or 342 an expert; 342
        const CallSizes sizes = sizes_of(rows, types::DataType::fp32);
        const Grouped grouped(sizes);
        const Buffer a = bf16_buffer(grouped.a);
        const Buffer dy = bf16_buffer(grouped.dy);
        std::vector<std::uint64_t> digests;
        for (int round = 0; round < 5; ++round) {
            const Buffer d_weight = fp32_buffer(grouped.before);
            run(Call::grouped_linear_weight_gradient, sizes, {&dy, &a, &d_weight, &workspace});
            digests.push_back(d_weight.digest());
        }
        EXPECT_EQ(digests, std::vector<std::uint64_t>(5, digests[0]));
    }
}

TEST_F(GroupedGemm, OfARouterGivesLogitsInFp32) {
    CallSizes sizes = sizes_of(30, types::DataType::bf16);
    sizes.experts = 0;
    sizes.fp32_result = true;
    const Values a = random_values(30 * kDepth, 1);
    const Values weight = random_values(kColumns * kDepth, 2);
    Doubles expected(static_cast<std::size_t>(30 * kColumns));
    for (std::int64_t t = 0; t < 30; ++t) {
        for (std::int64_t c = 0; c < kColumns; ++c) {
            for (std::int64_t k = 0; k < kDepth; ++k) {
                expected[place(t, c, kColumns)] +=
                    static_cast<double>(a[place(t, k, kDepth)]) * static_cast<double>(weight[place(c, k, kDepth)]);
            }
        }
    }
    const Buffer a_buffer = bf16_buffer(a);
    const Buffer weight_buffer = bf16_buffer(weight);
    const Buffer y = empty_fp32(30 * kColumns);
    const Buffer workspace(kWorkspace);
    run(Call::linear_forward, sizes, {&a_buffer, &weight_buffer, &y, &workspace});
    expect_close(y.read<float>(), expected, 1e-5, 1e-4);
}

}  // namespace
}  // namespace stowage::executor
