#include <algorithm>
#include <cmath>

#include "scenarios/types/error.hpp"
#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Doubles = std::vector<double>;

class Optimizer : public WorkloadGpu {};

CallSizes sizes_of(std::int64_t rows, types::DataType type) {
    CallSizes sizes;
    sizes.rows = rows;
    sizes.value = 1;
    sizes.gradient_type = type;
    return sizes;
}

Doubles doubles(const Values& values) { return {values.begin(), values.end()}; }

double length_of(const Values& values) {
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(sum);
}

/// AdamW in double: gradient scaled, moments 0.9 and 0.999, epsilon 1e-8, rate 1e-5, decay 0.01.
struct Adam {
    Doubles master, first, second;
    void step(const Values& gradient, double scale, double number) {
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            const double g = static_cast<double>(gradient[i]) * scale;
            first[i] = 0.9 * first[i] + 0.1 * g;
            second[i] = 0.999 * second[i] + 0.001 * g * g;
            const double mean = first[i] / (1 - std::pow(0.9, number));
            const double spread = std::sqrt(second[i] / (1 - std::pow(0.999, number))) + 1e-8;
            master[i] -= 1e-5 * (mean / spread + 0.01 * master[i]);
        }
    }
};

TEST_F(Optimizer, MeasuresTheGradientsLengthAndWhatClipsItToOne) {
    for (const std::int64_t rows : {std::int64_t{8}, std::int64_t{1000}, std::int64_t{5'000'064}})
        for (const types::DataType type : {types::DataType::fp32, types::DataType::bf16})
            for (const float scale : {1.0F, 1e-5F}) {
                const Values values = random_values(rows, 3, scale);
                const Buffer gradient = gradient_buffer(values, type);
                const Buffer norm = fp32_buffer({7, 7});
                const Buffer workspace = empty_fp32(layers::norm_partials(rows));
                run(Call::gradient_norm, sizes_of(rows, type), {&gradient, &norm, &workspace});
                const double length = length_of(values);
                expect_close(norm.read<float>(), {length, std::min(1.0, 1 / (length + 1e-6))}, 1e-5, 0);
            }
}

TEST_F(Optimizer, FollowsAdamWOverSteps) {
    constexpr std::int64_t kRows = 1'000'064;
    for (const types::DataType type : {types::DataType::fp32, types::DataType::bf16}) {
        const Values start = random_values(kRows, 1, 0.02F);
        Adam expected{doubles(start), Doubles(kRows), Doubles(kRows)};
        const Buffer master = fp32_buffer(start);
        const Buffer first = fp32_buffer(Values(kRows));
        const Buffer second = fp32_buffer(Values(kRows));
        const Buffer parameters = empty_bf16(kRows);
        const Buffer norm = fp32_buffer({2, 0.5F});
        for (std::uint64_t step = 0; step < 3; ++step) {
            const Values values = random_values(kRows, 10 + step, 1e-2F);
            const Buffer gradient = gradient_buffer(values, type);
            workload().begin_step(step, stream().get());
            run(Call::adam_update, sizes_of(kRows, type), {&gradient, &norm, &master, &first, &second, &parameters});
            expected.step(values, 0.5, static_cast<double>(step + 1));
        }
        expect_close(master.read<float>(), expected.master, 1e-6, 1e-9);
        expect_close(first.read<float>(), expected.first, 1e-5, 1e-9);
        expect_close(second.read<float>(), expected.second, 1e-4, 1e-12);  // 1 - 0.999 in fp32 is 1.3e-5 off
        Values rounded;
        for (const float value : master.read<float>()) rounded.push_back(round_to_bf16(value));
        EXPECT_EQ(parameters.read_bf16(), rounded);
    }
}

TEST_F(Optimizer, GivesTheSameBitsAgain) {
    constexpr std::int64_t kRows = 3'000'064;
    const Buffer gradient = fp32_buffer(random_values(kRows, 3));
    const Buffer workspace = empty_fp32(layers::norm_partials(kRows));
    const Buffer one = fp32_buffer({0, 0});
    const Buffer other = fp32_buffer({0, 0});
    for (const Buffer* norm : {&one, &other})
        run(Call::gradient_norm, sizes_of(kRows, types::DataType::fp32), {&gradient, norm, &workspace});
    EXPECT_EQ(one.read<std::uint32_t>(), other.read<std::uint32_t>());
}

TEST_F(Optimizer, RefusesLengthsThatAreNoVectors) {
    const std::vector<CallShape> calls{{Call::adam_update, sizes_of(12, types::DataType::fp32)}};
    EXPECT_THROW(workload().prepare(calls), types::UnsupportedError);
}

}  // namespace
}  // namespace stowage::executor
