#include <cmath>

#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Doubles = std::vector<double>;

class Activation : public WorkloadGpu {};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double gelu(double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }
/// By central differences: independent of the formula in the kernel; its error is about 1e-10.
double slope(double (*function)(double), double x) { return (function(x + 1e-5) - function(x - 1e-5)) / 2e-5; }

CallSizes sizes_of(std::int64_t rows, std::int64_t columns, bool gated) {
    CallSizes sizes;
    sizes.rows = rows;
    sizes.columns = columns;
    sizes.gated = gated;
    return sizes;
}

struct Expected {
    Doubles a;
    Doubles dg;
};

Expected expected_gated(const Values& g, const Values& da, std::size_t rows, std::size_t columns) {
    Expected expected{Doubles(rows * columns), Doubles(2 * rows * columns)};
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
            const auto gate = static_cast<double>(g[r * 2 * columns + c]);
            const auto value = static_cast<double>(g[r * 2 * columns + columns + c]);
            const auto gradient = static_cast<double>(da[r * columns + c]);
            expected.a[r * columns + c] = silu(gate) * value;
            expected.dg[r * 2 * columns + c] = gradient * value * slope(silu, gate);
            expected.dg[r * 2 * columns + columns + c] = gradient * silu(gate);
        }
    }
    return expected;
}

Expected expected_plain(const Values& g, const Values& da) {
    Expected expected;
    for (std::size_t i = 0; i < g.size(); ++i) {
        expected.a.push_back(gelu(static_cast<double>(g[i])));
        expected.dg.push_back(static_cast<double>(da[i]) * slope(gelu, static_cast<double>(g[i])));
    }
    return expected;
}

TEST_F(Activation, ComputesSwiGluAndGeluAndTheirGradients) {
    for (const bool gated : {true, false}) {
        for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 8}, {3, 2056}, {50, 256}}) {
            const std::int64_t wide = gated ? 2 * columns : columns;
            Values g = random_values(rows * wide, 1, 3.0F);
            g[0] = -100.0F;  // far out, nothing becomes a NaN
            g[1] = 100.0F;
            const Values da = random_values(rows * columns, 2);
            const Expected expected =
                gated ? expected_gated(g, da, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns))
                      : expected_plain(g, da);
            const Buffer g_buffer = bf16_buffer(g);
            const Buffer da_buffer = bf16_buffer(da);
            const Buffer a = empty_bf16(rows * columns);
            run(Call::activation_forward, sizes_of(rows, columns, gated), {&g_buffer, &a});
            expect_close(a.read_bf16(), expected.a);
            const Buffer dg = empty_bf16(rows * wide);
            const Buffer again = empty_bf16(rows * columns);
            run(Call::activation_backward, sizes_of(rows, columns, gated), {&g_buffer, &da_buffer, &dg, &again});
            expect_close(dg.read_bf16(), expected.dg);
            EXPECT_EQ(again.digest(), a.digest()) << "computed again, the same bits";
        }
    }
}

TEST_F(Activation, MayWriteItsGradientsOverWhatItReads) {
    const Values g = random_values(20 * 128, 1);
    const Values da = random_values(20 * 64, 2);
    const Buffer g_buffer = bf16_buffer(g);
    const Buffer da_buffer = bf16_buffer(da);
    const Buffer dg = empty_bf16(20 * 128);
    const Buffer a = empty_bf16(20 * 64);
    run(Call::activation_backward, sizes_of(20, 64, true), {&g_buffer, &da_buffer, &dg, &a});
    run(Call::activation_backward, sizes_of(20, 64, true), {&g_buffer, &da_buffer, &g_buffer, &da_buffer});
    EXPECT_EQ(g_buffer.digest(), dg.digest());
    EXPECT_EQ(da_buffer.digest(), a.digest());
}

class Rotary : public WorkloadGpu {};

CallSizes rotary_sizes(std::int64_t sequence, std::int64_t batch) {
    CallSizes sizes;
    sizes.rows = sequence * batch;
    sizes.sequence = sequence;
    sizes.batch = batch;
    sizes.heads = 6;
    sizes.groups = 2;
    sizes.head_size = 32;
    return sizes;
}

/// Queries and keys turned by place * base^(-2 i / head size); values as they are.
Doubles turned(const Values& packed, const CallSizes& sizes, double base) {
    Doubles expected(packed.begin(), packed.end());
    const std::int64_t half = sizes.head_size / 2;
    for (std::int64_t row = 0; row < sizes.rows; ++row) {
        const auto place = static_cast<double>(row / sizes.batch);
        for (std::int64_t head = 0; head < sizes.heads + sizes.groups; ++head) {
            const auto at = (row * (sizes.heads + 2 * sizes.groups) + head) * sizes.head_size;
            for (std::int64_t i = 0; i < half; ++i) {
                const double angle =
                    place * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(sizes.head_size));
                const auto x = static_cast<double>(packed[static_cast<std::size_t>(at + i)]);
                const auto y = static_cast<double>(packed[static_cast<std::size_t>(at + i + half)]);
                expected[static_cast<std::size_t>(at + i)] = x * std::cos(angle) - y * std::sin(angle);
                expected[static_cast<std::size_t>(at + i + half)] = y * std::cos(angle) + x * std::sin(angle);
            }
        }
    }
    return expected;
}

TEST_F(Rotary, TurnsQueriesAndKeysByTheirPlaceAndLeavesValues) {
    for (const std::int64_t batch : {1, 2}) {
        const CallSizes sizes = rotary_sizes(33, batch);
        const Values packed = random_values(sizes.rows * 10 * 32, 1);
        const Buffer buffer = bf16_buffer(packed);
        const Buffer table = empty_fp32(33 * 32);
        workload().fill_rotary_table(table.get(), 33, 32, 10000.0, stream().get());
        run(Call::rotary_forward, sizes, {&buffer, &table});
        expect_close(buffer.read_bf16(), turned(packed, sizes, 10000.0));
        run(Call::rotary_backward, sizes, {&buffer, &table});
        // Back again, after two roundings of numbers up to 2.5 (half a unit is 2^-8 there).
        expect_close(buffer.read_bf16(), Doubles(packed.begin(), packed.end()), 1.0 / 128, 1e-2);
    }
}

TEST_F(Rotary, TurnsBackwardByTheOppositeAngle) {
    const CallSizes sizes = rotary_sizes(5, 1);
    const Values packed = random_values(sizes.rows * 10 * 32, 3);
    const Buffer buffer = bf16_buffer(packed);
    const Buffer table = empty_fp32(5 * 32);
    workload().fill_rotary_table(table.get(), 5, 32, 10000.0, stream().get());
    Values angles = table.read<float>();
    for (std::size_t i = 1; i < angles.size(); i += 2) angles[i] = -angles[i];  // cos stays, sin turns
    const Buffer opposite = fp32_buffer(angles);
    const Buffer same = bf16_buffer(packed);
    run(Call::rotary_backward, sizes, {&buffer, &table});
    run(Call::rotary_forward, sizes, {&same, &opposite});
    EXPECT_EQ(buffer.digest(), same.digest());
}

}  // namespace
}  // namespace stowage::executor
