#include <cmath>

#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Doubles = std::vector<double>;

class Loss : public WorkloadGpu {};

CallSizes sizes_of(std::int64_t rows, std::int64_t columns, double value) {
    CallSizes sizes;
    sizes.rows = rows;
    sizes.columns = columns;
    sizes.value = value;
    return sizes;
}

std::vector<std::int32_t> some_labels(std::int64_t rows, std::int64_t columns) {
    std::vector<std::int32_t> labels;
    for (std::int64_t row = 0; row < rows; ++row)
        labels.push_back(static_cast<std::int32_t>((row * 7919 + 3) % columns));
    return labels;
}

struct Entropy {
    Doubles log_sum_exp;
    double loss = 0;
    Doubles gradient;
};

Entropy expected_entropy(const Values& logits, const std::vector<std::int32_t>& labels, double scale) {
    Entropy expected;
    const std::size_t columns = logits.size() / labels.size();
    for (std::size_t row = 0; row < labels.size(); ++row) {
        const float* x = logits.data() + row * columns;
        double most = static_cast<double>(x[0]);
        for (std::size_t c = 1; c < columns; ++c) most = std::max(most, static_cast<double>(x[c]));
        double sum = 0;
        for (std::size_t c = 0; c < columns; ++c) sum += std::exp(static_cast<double>(x[c]) - most);
        const double all = most + std::log(sum);
        const auto label = static_cast<std::size_t>(labels[row]);
        expected.log_sum_exp.push_back(all);
        expected.loss += (all - static_cast<double>(x[label])) / static_cast<double>(labels.size());
        for (std::size_t c = 0; c < columns; ++c) {
            expected.gradient.push_back((std::exp(static_cast<double>(x[c]) - all) - (c == label ? 1 : 0)) * scale);
        }
    }
    return expected;
}

TEST_F(Loss, IsTheMeanCrossEntropyOfTheLabelsAndItsGradient) {
    for (const auto& [rows, columns] :
         {std::pair<std::int64_t, std::int64_t>{1, 8}, {37, 1000}, {5, 16392}, {1100, 64}}) {
        const Values logits = random_values(rows * columns, 1, 4.0F);
        const auto labels = some_labels(rows, columns);
        const double scale = 1.0 / static_cast<double>(rows);
        const Entropy expected = expected_entropy(logits, labels, scale);
        const Buffer logits_buffer = bf16_buffer(logits);
        const Buffer labels_buffer = int_buffer(labels);
        const Buffer log_sum_exp = empty_fp32(rows);
        const Buffer losses = fp32_buffer({5, 6, 7});
        const CallSizes sizes = sizes_of(rows, columns, scale);
        run(Call::cross_entropy_forward, sizes, {&logits_buffer, &labels_buffer, &log_sum_exp, &losses},
            {.microbatch = 1, .layer = 0});
        expect_close(log_sum_exp.read<float>(), expected.log_sum_exp, 1e-5, 1e-5);
        expect_close(losses.read<float>(), {5, expected.loss, 7}, 1e-5, 1e-5);
        run(Call::cross_entropy_backward, sizes, {&logits_buffer, &labels_buffer, &log_sum_exp});
        expect_close(logits_buffer.read_bf16(), expected.gradient, 1.0 / 128, 1e-6 * scale);
    }
}

// The first 18 of 36 rows count 1 / 18 each, the others 0.3 / 18: the mean of the first and 0.3 times that of the
// second.
TEST_F(Loss, WeighsTheRowsOfPredictions) {
    constexpr std::int64_t kRows = 18;
    constexpr std::int64_t kColumns = 1000;
    const Values logits = random_values(2 * kRows * kColumns, 1, 4.0F);
    const auto labels = some_labels(2 * kRows, kColumns);
    const auto half = static_cast<std::ptrdiff_t>(logits.size() / 2);
    const double scale = 1.0 / kRows;
    const Entropy model =
        expected_entropy({logits.begin(), logits.begin() + half}, {labels.begin(), labels.begin() + kRows}, scale);
    const Entropy predicted =
        expected_entropy({logits.begin() + half, logits.end()}, {labels.begin() + kRows, labels.end()}, 0.3 * scale);
    Doubles gradient = model.gradient;
    gradient.insert(gradient.end(), predicted.gradient.begin(), predicted.gradient.end());
    CallSizes sizes = sizes_of(2 * kRows, kColumns, scale);
    sizes.depths = 2;
    sizes.later_value = 0.3 * scale;
    const Buffer logits_buffer = bf16_buffer(logits);
    const Buffer labels_buffer = int_buffer(labels);
    const Buffer log_sum_exp = empty_fp32(2 * kRows);
    const Buffer losses = fp32_buffer({5});
    run(Call::cross_entropy_forward, sizes, {&logits_buffer, &labels_buffer, &log_sum_exp, &losses});
    expect_close(losses.read<float>(), {model.loss + 0.3 * predicted.loss}, 1e-5, 1e-5);
    run(Call::cross_entropy_backward, sizes, {&logits_buffer, &labels_buffer, &log_sum_exp});
    expect_close(logits_buffer.read_bf16(), gradient, 1.0 / 128, 1e-6 * scale);
}

TEST_F(Loss, OfHugeLogitsStaysFinite) {
    Values logits(16, -30000.0F);
    logits[3] = 30000.0F;
    const Buffer logits_buffer = bf16_buffer(logits);
    const Buffer labels = int_buffer({3});
    const Buffer log_sum_exp = empty_fp32(1);
    const Buffer losses = fp32_buffer({9});
    run(Call::cross_entropy_forward, sizes_of(1, 16, 1), {&logits_buffer, &labels, &log_sum_exp, &losses});
    EXPECT_EQ(losses.read<float>(), Values{0.0F}) << "all the probability is on the label";
}

TEST_F(Loss, IsTheMeanSquareAndItsGradient) {
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 8}, {1000, 520}}) {
        const Values y = random_values(rows * columns, 1);
        const double factor = 2.0 / static_cast<double>(rows * columns);
        double mean = 0;
        Doubles gradient;
        for (const float value : y) {
            mean += static_cast<double>(value) * static_cast<double>(value) / static_cast<double>(y.size());
            gradient.push_back(static_cast<double>(value) * factor);
        }
        const Buffer y_buffer = bf16_buffer(y);
        const Buffer losses = fp32_buffer({5, 6});
        const Buffer workspace = empty_fp32(layers::norm_partials(rows));
        const CallSizes sizes = sizes_of(rows, columns, factor);
        run(Call::mean_square_forward, sizes, {&y_buffer, &losses, &workspace}, {.microbatch = 1, .layer = 0});
        expect_close(losses.read<float>(), {5, mean}, 1e-5, 0);
        const Buffer dy = empty_bf16(rows * columns);
        run(Call::mean_square_backward, sizes, {&y_buffer, &dy});
        expect_close(dy.read_bf16(), gradient, 1.0 / 256, 1e-12);
    }
}

TEST_F(Loss, HasTheSameBitsEveryTime) {
    const Values logits = random_values(2000 * 512, 1, 4.0F);
    const Buffer logits_buffer = bf16_buffer(logits);
    const Buffer labels = int_buffer(some_labels(2000, 512));
    std::vector<std::uint64_t> digests;
    for (int round = 0; round < 3; ++round) {
        const Buffer log_sum_exp = empty_fp32(2000);
        const Buffer losses = empty_fp32(1);
        run(Call::cross_entropy_forward, sizes_of(2000, 512, 1), {&logits_buffer, &labels, &log_sum_exp, &losses});
        digests.push_back(losses.digest() + log_sum_exp.digest());
    }
    EXPECT_EQ(digests[0], digests[1]);
    EXPECT_EQ(digests[0], digests[2]);
}

}  // namespace
}  // namespace stowage::executor
