// RMSNorm of heads with the rotary turn behind it, held against double arithmetic on the host.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Doubles = std::vector<double>;

constexpr double kEpsilon = 1e-5;
constexpr double kBase = 10000;

CallSizes sizes_of(std::int64_t head_size, std::int64_t batch, bool rotary) {
    CallSizes sizes;
    sizes.sequence = 37;
    sizes.batch = batch;
    sizes.rows = sizes.sequence * batch;
    sizes.heads = 6;
    sizes.groups = 2;
    sizes.head_size = head_size;
    sizes.value = kEpsilon;
    sizes.rotary = rotary;
    sizes.gradient_type = types::DataType::fp32;
    return sizes;
}

/// One head of one row; `sign` -1 turns back.
void turn(Doubles& head, std::int64_t place, double sign) {
    const std::size_t half = head.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
        const double angle =
            sign * static_cast<double>(place) * std::pow(kBase, -static_cast<double>(i) / static_cast<double>(half));
        const double x = head[i];
        const double y = head[i + half];
        head[i] = x * std::cos(angle) - y * std::sin(angle);
        head[i + half] = y * std::cos(angle) + x * std::sin(angle);
    }
}

struct Reference {
    Doubles out;
    Doubles gradient;
    Doubles query_gradient;
    Doubles key_gradient;
};

Reference reference(const CallSizes& sizes, const Values& packed, const Values& query, const Values& key,
                    const Values& dy) {
    const auto size = static_cast<std::size_t>(sizes.head_size);
    Reference result{Doubles(packed.begin(), packed.end()), Doubles(dy.begin(), dy.end()), Doubles(size),
                     Doubles(size)};
    const std::int64_t all = sizes.heads + 2 * sizes.groups;
    for (std::int64_t row = 0; row < sizes.rows; ++row)
        for (std::int64_t head = 0; head < sizes.heads + sizes.groups; ++head) {
            const Values& weight = head < sizes.heads ? query : key;
            Doubles& sum = head < sizes.heads ? result.query_gradient : result.key_gradient;
            const auto at = static_cast<std::size_t>(row * all + head) * size;
            double squares = 0;
            for (std::size_t i = 0; i < size; ++i) squares += static_cast<double>(packed[at + i]) * packed[at + i];
            const double inverse = 1 / std::sqrt(squares / static_cast<double>(size) + kEpsilon);
            Doubles y(size);
            Doubles back(dy.begin() + static_cast<std::ptrdiff_t>(at),
                         dy.begin() + static_cast<std::ptrdiff_t>(at + size));
            for (std::size_t i = 0; i < size; ++i) y[i] = packed[at + i] * inverse * weight[i];
            if (sizes.rotary) {
                turn(y, row / sizes.batch, 1);
                turn(back, row / sizes.batch, -1);
            }
            double mean = 0;
            for (std::size_t i = 0; i < size; ++i) mean += back[i] * weight[i] * packed[at + i] * inverse;
            mean /= static_cast<double>(size);
            for (std::size_t i = 0; i < size; ++i) {
                const double normal = packed[at + i] * inverse;
                sum[i] += back[i] * normal;
                result.out[at + i] = y[i];
                result.gradient[at + i] = inverse * (back[i] * weight[i] - normal * mean);
            }
        }
    return result;
}

class HeadNorm : public WorkloadGpu {
protected:
    void check_against_host(const CallSizes& sizes) {
        const std::int64_t count = sizes.rows * (sizes.heads + 2 * sizes.groups) * sizes.head_size;
        const Values packed = random_values(count, 1);
        const Values dy = random_values(count, 2);
        const Values query = random_values(sizes.head_size, 3);
        const Values key = random_values(sizes.head_size, 4);
        const Reference expected = reference(sizes, packed, query, key, dy);
        const Buffer packed_buffer = bf16_buffer(packed);
        const Buffer query_buffer = bf16_buffer(query);
        const Buffer key_buffer = bf16_buffer(key);
        const Buffer table = empty_fp32(sizes.sequence * sizes.head_size);
        workload().fill_rotary_table(table.get(), sizes.sequence, sizes.head_size, kBase, stream().get());
        const Buffer out = empty_bf16(count);
        std::vector<const Buffer*> operands{&packed_buffer, &query_buffer, &key_buffer};
        if (sizes.rotary) operands.push_back(&table);
        std::vector<const Buffer*> forward = operands;
        forward.push_back(&out);
        run(Call::head_norm_forward, sizes, forward);
        expect_close(out.read_bf16(), expected.out);

        const Buffer gradient = bf16_buffer(dy);
        const Values zeros(static_cast<std::size_t>(sizes.head_size));
        const Buffer query_gradient = fp32_buffer(zeros);
        const Buffer key_gradient = fp32_buffer(zeros);
        const Buffer partials = empty_fp32(2 * layers::norm_partials(sizes.rows) * sizes.head_size);
        for (const Buffer* buffer : {&gradient, &query_gradient, &key_gradient, &partials}) operands.push_back(buffer);
        run(Call::head_norm_backward, sizes, operands);
        expect_close(gradient.read_bf16(), expected.gradient, 1.0 / 128, 2e-3);
        expect_close(query_gradient.read<float>(), expected.query_gradient, 1e-4, 1e-2);
        expect_close(key_gradient.read<float>(), expected.key_gradient, 1e-4, 1e-2);
    }
};

TEST_F(HeadNorm, IsTheHostsForEverySizeOfAHeadWithAndWithoutPlaces) {
    for (const std::int64_t head_size : {16, 64, 96, 128})
        for (const std::int64_t batch : {1, 2})
            for (const bool rotary : {false, true}) {
                SCOPED_TRACE(::testing::Message() << "size " << head_size << ", batch " << batch << ", " << rotary);
                check_against_host(sizes_of(head_size, batch, rotary));
            }
}

}  // namespace
}  // namespace stowage::executor
