#include <cmath>
#include <cstddef>

#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Doubles = std::vector<double>;
using Integers = std::vector<std::int32_t>;

/// A permutation of the choices, as a routing makes it: place -> choice and back.
struct Routing {
    Routing(std::int64_t rows, std::int64_t topk) : places(static_cast<std::size_t>(rows * topk)) {
        // Steps of a number that shares no factor with the number of choices reach each of them once.
        const auto count = static_cast<std::int32_t>(rows * topk);
        std::int32_t step = 1;
        for (const std::int32_t prime : {7, 11, 13}) step = count % prime == 0 ? step : prime;
        for (std::int32_t place = 0; place < count; ++place) {
            const std::int32_t choice = (place * step + 3) % count;
            sources.push_back(choice);
            places[static_cast<std::size_t>(choice)] = place;
        }
    }
    Integers sources;
    Integers places;
};

CallSizes sizes_of(std::int64_t rows, std::int64_t columns, std::int64_t topk) {
    CallSizes sizes;
    sizes.rows = rows;
    sizes.columns = columns;
    sizes.topk = topk;
    return sizes;
}

std::vector<CallSizes> shapes() {
    std::vector<CallSizes> all = {sizes_of(1, 8, 1), sizes_of(5, 24, 3), sizes_of(33, 2056, 8), sizes_of(17, 4104, 16)};
    CallSizes sizes = sizes_of(64, 256, 4);
    sizes.experts = 10;  // 256 places in ten parts
    all.push_back(sizes);
    return all;
}

float at(const Values& matrix, std::int64_t row, std::int64_t column, std::int64_t columns) {
    return matrix[static_cast<std::size_t>(row * columns + column)];
}

class MoveRows : public WorkloadGpu {};

TEST_F(MoveRows, CopiesTokensAndWeightsToThePlacesOfTheirChoices) {
    for (const CallSizes& s : shapes()) {
        SCOPED_TRACE(testing::Message() << s.rows << " x " << s.columns << ", " << s.topk << " choices");
        const Routing routing(s.rows, s.topk);
        const Values x = random_values(s.rows * s.columns, 1);
        const Values weights = random_values(s.rows * s.topk, 2);
        Values y;
        Values row_weights;
        for (const std::int32_t choice : routing.sources) {
            for (std::int64_t c = 0; c < s.columns; ++c) y.push_back(at(x, choice / s.topk, c, s.columns));
            row_weights.push_back(weights[static_cast<std::size_t>(choice)]);
        }
        const Buffer x_buffer = bf16_buffer(x);
        const Buffer weights_buffer = fp32_buffer(weights);
        const Buffer sources = int_buffer(routing.sources);
        const Buffer y_buffer = empty_bf16(s.rows * s.topk * s.columns);
        const Buffer row_weights_buffer = empty_fp32(s.rows * s.topk);
        run(Call::permute_forward, s, {&x_buffer, &weights_buffer, &sources, &y_buffer, &row_weights_buffer});
        EXPECT_EQ(y_buffer.read_bf16(), y);
        EXPECT_EQ(row_weights_buffer.read<float>(), row_weights);
        const Buffer dy = empty_bf16(s.rows * s.topk * s.columns);
        run(Call::unpermute_backward, s, {&x_buffer, &sources, &dy});
        EXPECT_EQ(dy.read_bf16(), y) << "the gradient goes the same way";
    }
}

TEST_F(MoveRows, AddsTheChoicesOfATokenUp) {
    for (CallSizes s : shapes()) {
        SCOPED_TRACE(testing::Message() << s.rows << " x " << s.columns << ", " << s.topk << " choices");
        const Routing routing(s.rows, s.topk);
        const Values y = random_values(s.rows * s.topk * s.columns, 1);
        const Values addend = random_values(s.rows * s.columns, 2);
        const Values row_weights = random_values(s.rows * s.topk, 3);
        Doubles plain;
        Doubles with_addend;
        Values weights;
        for (std::int64_t t = 0; t < s.rows; ++t) {
            for (std::int64_t c = 0; c < s.columns; ++c) {
                double sum = 0;
                for (std::int64_t k = 0; k < s.topk; ++k) {
                    const std::int32_t place = routing.places[static_cast<std::size_t>(t * s.topk + k)];
                    sum += static_cast<double>(at(y, place, c, s.columns));
                }
                plain.push_back(sum);
                with_addend.push_back(sum + static_cast<double>(at(addend, t, c, s.columns)));
            }
        }
        for (const std::int32_t place : routing.places) weights.push_back(row_weights[static_cast<std::size_t>(place)]);
        const Buffer y_buffer = bf16_buffer(y);
        const Buffer places = int_buffer(routing.places);
        const Buffer addend_buffer = bf16_buffer(addend);
        const Buffer row_weights_buffer = fp32_buffer(row_weights);
        const Buffer z = empty_bf16(s.rows * s.columns);
        run(Call::unpermute_forward, s, {&y_buffer, &places, &z});
        expect_close(z.read_bf16(), plain, 1.0 / 256, 1e-5);
        const Buffer dx = empty_bf16(s.rows * s.columns);
        const Buffer dweights = empty_fp32(s.rows * s.topk);
        run(Call::permute_backward, s, {&y_buffer, &row_weights_buffer, &places, &dx, &dweights});
        EXPECT_EQ(dx.digest(), z.digest()) << "the gradient is the same sum";
        EXPECT_EQ(dweights.read<float>(), weights);
        s.has_addend = true;
        run(Call::unpermute_forward, s, {&y_buffer, &places, &addend_buffer, &z});
        expect_close(z.read_bf16(), with_addend, 1.0 / 256, 1e-5);
        run(Call::unpermute_forward, s, {&y_buffer, &places, &addend_buffer, &addend_buffer});
        EXPECT_EQ(addend_buffer.digest(), z.digest()) << "may be written over what it adds";
    }
}

/// Block (of the other's order) and place by place, straight from the contract.
Integers exchanged(std::int64_t x_rows, std::int64_t y_rows, std::int64_t ranks, std::int64_t experts, bool forward) {
    const std::int64_t blocks = ranks * experts;
    Integers sources;
    for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t there =
            forward ? block % ranks * experts + block / ranks : block % experts * ranks + block / experts;
        const std::int64_t begin = layers::rows_before(there, x_rows, blocks);
        const std::int64_t length = layers::rows_before(there + 1, x_rows, blocks) - begin;
        const std::int64_t rows =
            layers::rows_before(block + 1, y_rows, blocks) - layers::rows_before(block, y_rows, blocks);
        for (std::int64_t i = 0; i < rows; ++i) {
            sources.push_back(length > 0 ? static_cast<std::int32_t>(begin + i % length) : -1);
        }
    }
    return sources;
}

TEST_F(MoveRows, StandForWhatOtherRanksSend) {
    // Even, more rows than are sent (skewed), fewer, and so few that blocks are empty.
    for (const auto& [x_rows, y_rows] : {std::pair<std::int64_t, std::int64_t>{48, 48}, {48, 67}, {67, 48}, {5, 16}}) {
        for (const bool forward : {true, false}) {
            SCOPED_TRACE(testing::Message() << x_rows << " to " << y_rows << ", forward " << forward);
            CallSizes s = sizes_of(x_rows, 2064, 0);
            s.depth = y_rows;
            s.batch = 3;
            s.experts = 4;
            s.forward = forward;
            const Values x = random_values(x_rows * s.columns, 1);
            const Values weights = random_values(x_rows, 2);
            Values y;
            Values y_weights;
            for (const std::int32_t source : exchanged(x_rows, y_rows, 3, 4, forward)) {
                for (std::int64_t c = 0; c < s.columns; ++c) {
                    y.push_back(source >= 0 ? at(x, source, c, s.columns) : 0.0F);
                }
                y_weights.push_back(source >= 0 ? weights[static_cast<std::size_t>(source)] : 0.0F);
            }
            const Buffer x_buffer = bf16_buffer(x);
            const Buffer weights_buffer = fp32_buffer(weights);
            const Buffer y_buffer = empty_bf16(y_rows * s.columns);
            const Buffer y_weights_buffer = empty_fp32(y_rows);
            run(Call::exchange_rows, s, {&x_buffer, &weights_buffer, &y_buffer, &y_weights_buffer});
            EXPECT_EQ(y_buffer.read_bf16(), y);
            EXPECT_EQ(y_weights_buffer.read<float>(), y_weights);
            const Buffer alone = empty_bf16(y_rows * s.columns);
            run(Call::exchange_rows, s, {&x_buffer, &alone});
            EXPECT_EQ(alone.digest(), y_buffer.digest());
        }
    }
}

TEST_F(MoveRows, AreRepeatedKeptAndAdded) {
    CallSizes s = sizes_of(7, 1032, 0);
    s.batch = 3;
    const Values x = random_values(7 * 1032, 1);
    const Values other = random_values(7 * 1032, 2);
    Values thrice;
    Doubles sum;
    for (int i = 0; i < 3; ++i) thrice.insert(thrice.end(), x.begin(), x.end());
    for (std::size_t i = 0; i < x.size(); ++i) {
        sum.push_back(static_cast<double>(x[i]) + static_cast<double>(other[i]));
    }
    const Buffer x_buffer = bf16_buffer(x);
    const Buffer y = empty_bf16(3 * 7 * 1032);
    run(Call::repeat_rows, s, {&x_buffer, &y});
    EXPECT_EQ(y.read_bf16(), thrice);
    const Buffer kept = empty_bf16(7 * 1032);
    run(Call::keep_rows, s, {&y, &kept});
    EXPECT_EQ(kept.read_bf16(), x);
    const Buffer other_buffer = bf16_buffer(other);
    run(Call::add, s, {&x_buffer, &other_buffer});
    expect_close(x_buffer.read_bf16(), sum, 1.0 / 256, 1e-6);
    EXPECT_EQ(other_buffer.read_bf16(), other);
}

class WeightedActivation : public WorkloadGpu {};

double silu(double x) { return x / (1.0 + std::exp(-x)); }
/// By central differences.
double slope(double x) { return (silu(x + 1e-5) - silu(x - 1e-5)) / 2e-5; }

TEST_F(WeightedActivation, ComputesAWeightedSwiGluAndItsGradients) {
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 8}, {3, 2056}, {50, 768}}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << columns);
        const Values g = random_values(rows * 2 * columns, 1, 3.0F);
        const Values da = random_values(rows * columns, 2);
        const Values weights = random_values(rows, 3);
        Doubles a;
        Doubles dg(g.size());
        Doubles dweights;
        for (std::int64_t r = 0; r < rows; ++r) {
            const auto weight = static_cast<double>(weights[static_cast<std::size_t>(r)]);
            double sum = 0;
            for (std::int64_t c = 0; c < columns; ++c) {
                const auto gate = static_cast<double>(at(g, r, c, 2 * columns));
                const auto value = static_cast<double>(at(g, r, columns + c, 2 * columns));
                const auto gradient = static_cast<double>(at(da, r, c, columns));
                a.push_back(silu(gate) * value * weight);
                dg[static_cast<std::size_t>(r * 2 * columns + c)] = gradient * weight * value * slope(gate);
                dg[static_cast<std::size_t>((2 * r + 1) * columns + c)] = gradient * weight * silu(gate);
                sum += gradient * silu(gate) * value;
            }
            dweights.push_back(sum);
        }
        const CallSizes s = sizes_of(rows, columns, 0);
        const Buffer g_buffer = bf16_buffer(g);
        const Buffer da_buffer = bf16_buffer(da);
        const Buffer weights_buffer = fp32_buffer(weights);
        const Buffer a_buffer = empty_bf16(rows * columns);
        run(Call::weighted_activation_forward, s, {&g_buffer, &weights_buffer, &a_buffer});
        expect_close(a_buffer.read_bf16(), a);
        const Buffer dg_buffer = empty_bf16(rows * 2 * columns);
        const Buffer again = empty_bf16(rows * columns);
        const Buffer dweights_buffer = empty_fp32(rows);
        run(Call::weighted_activation_backward, s,
            {&g_buffer, &weights_buffer, &da_buffer, &dg_buffer, &again, &dweights_buffer});
        expect_close(dg_buffer.read_bf16(), dg);
        // Sums of up to 2056 numbers near 3, of either sign, in fp32.
        expect_close(dweights_buffer.read<float>(), dweights, 1e-4, 2e-3);
        EXPECT_EQ(again.digest(), a_buffer.digest()) << "computed again, the same bits";
        const Buffer dweights_again = empty_fp32(rows);
        run(Call::weighted_activation_backward, s,
            {&g_buffer, &weights_buffer, &da_buffer, &g_buffer, &da_buffer, &dweights_again});
        EXPECT_EQ(g_buffer.digest(), dg_buffer.digest()) << "may be written over what it reads";
        EXPECT_EQ(da_buffer.digest(), again.digest());
        EXPECT_EQ(dweights_again.digest(), dweights_buffer.digest()) << "the same bits every time";
    }
}

}  // namespace
}  // namespace stowage::executor
