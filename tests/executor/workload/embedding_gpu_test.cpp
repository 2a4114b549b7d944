#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;

class Embedding : public WorkloadGpu {};

CallSizes sizes_of(std::int64_t rows, std::int64_t columns, std::int64_t table_rows) {
    CallSizes sizes;
    sizes.rows = rows;
    sizes.columns = columns;
    sizes.depth = table_rows;
    return sizes;
}

/// Tokens with many repeats; a few are another rank's.
std::vector<std::int32_t> some_tokens(std::int64_t rows, std::int32_t table_rows) {
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < rows; ++i) tokens.push_back(i % 17 == 5 ? table_rows + i : (i * i + 3) % table_rows);
    return tokens;
}

TEST_F(Embedding, CopiesTheRowOfEachTokenAndGivesZerosForOthers) {
    for (const std::int64_t columns : {8, 4104}) {  // one vector; one more than a block's slice
        const auto tokens = some_tokens(37, 20);
        const Values table = random_values(20 * columns, 1);
        const Buffer y = empty_bf16(37 * columns);
        const Buffer on_device = int_buffer(tokens);
        const Buffer table_buffer = bf16_buffer(table);
        run(Call::embedding_forward, sizes_of(37, columns, 20), {&on_device, &table_buffer, &y});
        Values expected;
        for (const std::int32_t token : tokens) {
            for (std::int64_t c = 0; c < columns; ++c) {
                expected.push_back(token < 20 ? table[static_cast<std::size_t>(token * columns + c)] : 0.0F);
            }
        }
        EXPECT_EQ(y.read_bf16(), expected) << columns << " columns";
    }
}

std::vector<double> expected_gradient(const std::vector<std::int32_t>& tokens, const Values& dy, const Values& before,
                                      std::int64_t columns) {
    std::vector<double> expected(before.begin(), before.end());
    for (std::size_t row = 0; row < tokens.size(); ++row) {
        const auto to = static_cast<std::size_t>(tokens[row] * columns);
        if (to >= before.size()) continue;
        for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c) {
            expected[to + c] += static_cast<double>(dy[row * static_cast<std::size_t>(columns) + c]);
        }
    }
    return expected;
}

TEST_F(Embedding, AddsTheRowsOfAllPlacesOfATokenToItsGradient) {
    for (const auto type : {types::DataType::fp32, types::DataType::bf16}) {
        for (const std::int64_t columns : {16, 4104}) {
            const std::int64_t rows = 700;  // more than two rounds of a block's threads
            const auto tokens = some_tokens(rows, 20);
            const Values dy = random_values(rows * columns, 2);
            const Values before = random_values(20 * columns, 3);
            const Buffer on_device = int_buffer(tokens);
            const Buffer dy_buffer = bf16_buffer(dy);
            const Buffer gradient = gradient_buffer(before, type);
            CallSizes sizes = sizes_of(rows, columns, 20);
            sizes.gradient_type = type;
            run(Call::embedding_backward, sizes, {&on_device, &dy_buffer, &gradient});
            expect_close(gradient.read_as(type), expected_gradient(tokens, dy, before, columns),
                         type == types::DataType::fp32 ? 1e-5 : 1.0 / 256, 1e-4);
        }
    }
}

TEST_F(Embedding, GivesTheSameGradientEveryTime) {
    const Values dy = random_values(512 * 64, 4);
    const Buffer tokens = int_buffer(std::vector<std::int32_t>(512, 3));  // one row takes everything
    const Buffer dy_buffer = bf16_buffer(dy);
    std::uint64_t first = 0;
    for (int round = 0; round < 3; ++round) {
        const Buffer gradient = fp32_buffer(Values(5 * 64, 0.0F));
        CallSizes sizes = sizes_of(512, 64, 5);
        sizes.gradient_type = types::DataType::fp32;
        run(Call::embedding_backward, sizes, {&tokens, &dy_buffer, &gradient});
        if (round == 0) first = gradient.digest();
        EXPECT_EQ(gradient.digest(), first);
    }
}

}  // namespace
}  // namespace stowage::executor
