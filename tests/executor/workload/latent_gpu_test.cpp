// Multi-latent attention's packing and unpacking, and norms of a part of wider rows, against plain arithmetic.

#include <cmath>
#include <vector>

#include "scenarios/types/error.hpp"
#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Doubles = std::vector<double>;

constexpr double kBase = 10000;

/// Sizes of DeepSeek-V3's heads, and odd ones: turned columns that leave threads over, fewer and more heads than
/// threads that share a sum.
struct Case {
    std::int64_t sequence;
    std::int64_t batch;
    std::int64_t heads;
    std::int64_t plain;
    std::int64_t rope;
    std::int64_t value;
    std::int64_t latent;
};
const std::vector<Case> kCases = {{33, 1, 16, 128, 64, 128, 512},
                                  {17, 2, 128, 128, 64, 128, 512},
                                  {5, 3, 3, 40, 16, 32, 88},
                                  {4, 1, 130, 8, 48, 24, 8},
                                  {3, 1, 1, 24, 256, 8, 16}};

CallSizes sizes_of(const Case& one) {
    CallSizes sizes;
    sizes.rows = one.sequence * one.batch;
    sizes.sequence = one.sequence;
    sizes.batch = one.batch;
    sizes.heads = sizes.groups = one.heads;
    sizes.head_size = one.plain + one.rope;
    sizes.value_size = one.value;
    sizes.rope_size = one.rope;
    sizes.stride = one.latent + one.rope;
    return sizes;
}

/// Where things lie, in elements.
struct Places {
    explicit Places(const Case& one)
        : head(one.plain + one.rope),
          query_row(one.heads * head),
          key_value(one.plain + one.value),
          key_value_row(one.heads * key_value),
          down_row(one.latent + one.rope),
          packed_row(one.heads * (2 * head + one.value)) {}
    std::int64_t head, query_row, key_value, key_value_row, down_row, packed_row;
};

double at(const Values& values, std::int64_t index) {
    return static_cast<double>(values[static_cast<std::size_t>(index)]);
}
double& at(Doubles& values, std::int64_t index) { return values[static_cast<std::size_t>(index)]; }

/// Turned column `i` of those that begin at `first`; `sign` -1: turned back.
double turned(const Doubles& columns, std::int64_t i, std::int64_t place, double sign) {
    const auto rope = static_cast<std::int64_t>(columns.size());
    const std::int64_t half = rope / 2;
    const std::int64_t pair = i % half;
    const double angle =
        static_cast<double>(place) * std::pow(kBase, -2.0 * static_cast<double>(pair) / static_cast<double>(rope));
    const double x = columns[static_cast<std::size_t>(pair)];
    const double y = columns[static_cast<std::size_t>(pair + half)];
    const double sine = sign * std::sin(angle);
    return i < half ? x * std::cos(angle) - y * sine : y * std::cos(angle) + x * sine;
}

Doubles columns_of(const Values& values, std::int64_t first, std::int64_t count) {
    Doubles columns;
    for (std::int64_t i = 0; i < count; ++i) columns.push_back(at(values, first + i));
    return columns;
}

Doubles packed_by_hand(const Case& one, const Values& q, const Values& kv, const Values& down) {
    const Places n(one);
    const std::int64_t rows = one.sequence * one.batch;
    Doubles packed(static_cast<std::size_t>(rows * n.packed_row));
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t place = row / one.batch;
        const Doubles shared = columns_of(down, row * n.down_row + one.latent, one.rope);
        for (std::int64_t head = 0; head < one.heads; ++head) {
            const std::int64_t query_from = row * n.query_row + head * n.head;
            const std::int64_t key_from = row * n.key_value_row + head * n.key_value;
            const std::int64_t query = row * n.packed_row + head * n.head;
            const std::int64_t key = query + n.query_row;
            const std::int64_t value = row * n.packed_row + 2 * n.query_row + head * one.value;
            const Doubles own = columns_of(q, query_from + one.plain, one.rope);
            for (std::int64_t i = 0; i < one.plain; ++i) {
                at(packed, query + i) = at(q, query_from + i);
                at(packed, key + i) = at(kv, key_from + i);
            }
            for (std::int64_t i = 0; i < one.rope; ++i) {
                at(packed, query + one.plain + i) = turned(own, i, place, 1);
                at(packed, key + one.plain + i) = turned(shared, i, place, 1);
            }
            for (std::int64_t i = 0; i < one.value; ++i) at(packed, value + i) = at(kv, key_from + one.plain + i);
        }
    }
    return packed;
}

struct Gradients {
    Doubles q;
    Doubles kv;
    Doubles down;  ///< what was there before in the columns of the latent
};

Gradients unpacked_by_hand(const Case& one, const Values& packed, const Values& before) {
    const Places n(one);
    const std::int64_t rows = one.sequence * one.batch;
    Gradients found{Doubles(static_cast<std::size_t>(rows * n.query_row)),
                    Doubles(static_cast<std::size_t>(rows * n.key_value_row)), Doubles(before.begin(), before.end())};
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t place = row / one.batch;
        Doubles sum(static_cast<std::size_t>(one.rope));
        for (std::int64_t head = 0; head < one.heads; ++head) {
            const std::int64_t query_to = row * n.query_row + head * n.head;
            const std::int64_t key_to = row * n.key_value_row + head * n.key_value;
            const std::int64_t query = row * n.packed_row + head * n.head;
            const std::int64_t key = query + n.query_row;
            const std::int64_t value = row * n.packed_row + 2 * n.query_row + head * one.value;
            const Doubles own = columns_of(packed, query + one.plain, one.rope);
            for (std::int64_t i = 0; i < one.plain; ++i) {
                at(found.q, query_to + i) = at(packed, query + i);
                at(found.kv, key_to + i) = at(packed, key + i);
            }
            for (std::int64_t i = 0; i < one.rope; ++i) {
                at(found.q, query_to + one.plain + i) = turned(own, i, place, -1);
                at(sum, i) += at(packed, key + one.plain + i);
            }
            for (std::int64_t i = 0; i < one.value; ++i) at(found.kv, key_to + one.plain + i) = at(packed, value + i);
        }
        for (std::int64_t i = 0; i < one.rope; ++i)
            at(found.down, row * n.down_row + one.latent + i) = turned(sum, i, place, -1);
    }
    return found;
}

class Latent : public WorkloadGpu {
protected:
    Buffer table_of(const Case& one) {
        Buffer table = empty_fp32(one.sequence * one.rope);
        workload().fill_rotary_table(table.get(), one.sequence, one.rope, kBase, stream().get());
        return table;
    }
};

TEST_F(Latent, PacksQueriesKeysAndValues) {
    for (const Case& one : kCases) {
        SCOPED_TRACE(testing::Message() << one.sequence << " x " << one.batch << ", " << one.heads << " heads");
        const Places n(one);
        const CallSizes sizes = sizes_of(one);
        const Values q = random_values(sizes.rows * n.query_row, 1);
        const Values kv = random_values(sizes.rows * n.key_value_row, 2);
        const Values down = random_values(sizes.rows * n.down_row, 3);
        const Buffer q_buffer = bf16_buffer(q);
        const Buffer kv_buffer = bf16_buffer(kv);
        const Buffer down_buffer = bf16_buffer(down);
        const Buffer table = table_of(one);
        const Buffer packed = empty_bf16(sizes.rows * n.packed_row);
        run(Call::latent_pack_forward, sizes, {&q_buffer, &kv_buffer, &down_buffer, &table, &packed});
        expect_close(packed.read_bf16(), packed_by_hand(one, q, kv, down));
    }
}

// Sums of up to 130 numbers of size one are rounded once: 2^-9 of about 11.
TEST_F(Latent, UnpacksGradientsAndAddsThoseOfTheColumnsThatAllKeysShare) {
    for (const Case& one : kCases) {
        SCOPED_TRACE(testing::Message() << one.sequence << " x " << one.batch << ", " << one.heads << " heads");
        const Places n(one);
        const CallSizes sizes = sizes_of(one);
        const Values packed = random_values(sizes.rows * n.packed_row, 4);
        const Values before = random_values(sizes.rows * n.down_row, 5);
        const Gradients expected = unpacked_by_hand(one, packed, before);
        const Buffer packed_buffer = bf16_buffer(packed);
        const Buffer table = table_of(one);
        std::vector<std::uint64_t> digests;
        for (int round = 0; round < 2; ++round) {
            const Buffer dq = empty_bf16(sizes.rows * n.query_row);
            const Buffer dkv = empty_bf16(sizes.rows * n.key_value_row);
            const Buffer ddown = bf16_buffer(before);
            run(Call::latent_pack_backward, sizes, {&packed_buffer, &table, &dq, &dkv, &ddown});
            expect_close(dq.read_bf16(), expected.q);
            expect_close(dkv.read_bf16(), expected.kv);
            expect_close(ddown.read_bf16(), expected.down);
            digests.push_back(ddown.digest());
        }
        EXPECT_EQ(digests[0], digests[1]);
    }
}

TEST_F(Latent, RefusesSizesThatItsKernelsDoNotTake) {
    const auto refused = [this](const Case& one) {
        const CallShape shape{Call::latent_pack_forward, sizes_of(one)};
        EXPECT_THROW(workload().prepare({&shape, 1}), types::UnsupportedError);
    };
    refused({4, 1, 2, 128, 24, 128, 512});   // pairs lie eight apart
    refused({4, 1, 2, 128, 64, 12, 512});    // values of no whole vectors
    refused({4, 1, 2, 128, 64, 128, 510});   // rows that begin between vectors
    refused({4, 1, 2, 128, 272, 128, 512});  // more turned columns than threads can add
}

// A norm of rows of 88 inside rows of 104, and of rows of 512 inside 576, gives what it gives for these rows alone, and
// writes nothing behind them.
TEST_F(Latent, NormalisesThePartOfARow) {
    for (const auto& [columns, stride] : {std::pair<std::int64_t, std::int64_t>{88, 104}, {512, 576}}) {
        constexpr std::int64_t kRows = 300;
        CallSizes sizes;
        sizes.rows = kRows;
        sizes.columns = columns;
        sizes.value = 1e-5;
        const Values wide = random_values(kRows * stride, 6);
        const Values before = random_values(kRows * stride, 7);
        Values narrow;
        for (std::int64_t i = 0; i < kRows * columns; ++i)
            narrow.push_back(wide[static_cast<std::size_t>(i / columns * stride + i % columns)]);
        const Buffer weight = bf16_buffer(random_values(columns, 8));
        const Buffer dy = bf16_buffer(random_values(kRows * columns, 9));
        const Buffer workspace = empty_fp32(layers::norm_partials(kRows) * columns);
        std::vector<Values> outputs;
        std::vector<Values> gradients;
        std::vector<std::uint64_t> weight_gradients;
        for (const bool strided : {false, true}) {
            sizes.stride = strided ? stride : 0;
            const Buffer x = bf16_buffer(strided ? wide : narrow);
            const Buffer y = empty_bf16(kRows * columns);
            const Buffer rstd = empty_fp32(kRows);
            run(Call::norm_forward, sizes, {&x, &weight, &y, &rstd});
            outputs.push_back(y.read_bf16());
            const Buffer dx = strided ? bf16_buffer(before) : empty_bf16(kRows * columns);
            const Buffer gradient =
                gradient_buffer(Values(static_cast<std::size_t>(columns), 0.0F), sizes.gradient_type);
            run(Call::norm_backward, sizes, {&x, &weight, &rstd, &dy, &dx, &gradient, &workspace});
            gradients.push_back(dx.read_bf16());
            weight_gradients.push_back(gradient.digest());
        }
        EXPECT_EQ(outputs[0], outputs[1]);
        EXPECT_EQ(weight_gradients[0], weight_gradients[1]);
        Values expected = before;
        for (std::int64_t i = 0; i < kRows * columns; ++i)
            expected[static_cast<std::size_t>(i / columns * stride + i % columns)] =
                gradients[0][static_cast<std::size_t>(i)];
        EXPECT_EQ(gradients[1], expected);
    }
}

}  // namespace
}  // namespace stowage::executor
