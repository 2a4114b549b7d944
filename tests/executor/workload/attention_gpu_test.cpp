#include <cmath>

#include "executor/cuda/device_error.hpp"
#include "planner/layers/stowage/attention_workspace.hpp"
#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Doubles = std::vector<double>;

constexpr std::int64_t kWorkspace = 64 << 20;

CallSizes sizes_of(std::int64_t batch, std::int64_t sequence, std::int64_t heads, std::int64_t groups,
                   std::int64_t head_size, std::int64_t value_size = 0) {
    CallSizes sizes;
    sizes.rows = batch * sequence;
    sizes.batch = batch;
    sizes.sequence = sequence;
    sizes.heads = heads;
    sizes.groups = groups;
    sizes.head_size = head_size;
    sizes.value_size = value_size;
    sizes.value = 1.0 / std::sqrt(static_cast<double>(head_size));
    sizes.workspace_bytes = kWorkspace;
    return sizes;
}

/// Plain causal softmax attention in double, forward and backward, on packed rows.
class Reference {
public:
    explicit Reference(const CallSizes& sizes)
        : sizes_(sizes),
          value_size_(sizes.value_size > 0 ? sizes.value_size : sizes.head_size),
          width_((sizes.heads + sizes.groups) * sizes.head_size + sizes.groups * value_size_),
          packed(random_values(sizes.rows * width_, 1)),
          d_output(random_values(sizes.rows * sizes.heads * value_size_, 2)),
          output(d_output.size()),
          statistics(static_cast<std::size_t>(sizes.rows * sizes.heads)),
          d_packed(packed.size()) {
        for (std::int64_t b = 0; b < sizes.batch; ++b)
            for (std::int64_t head = 0; head < sizes.heads; ++head)
                for (std::int64_t place = 0; place < sizes.sequence; ++place) one_query(b, head, place);
    }

private:
    CallSizes sizes_;
    std::int64_t value_size_;
    std::int64_t width_;

public:
    Values packed;
    Values d_output;
    Doubles output;
    Doubles statistics;
    Doubles d_packed;

private:
    [[nodiscard]] std::size_t row_at(std::int64_t b, std::int64_t place) const {
        return static_cast<std::size_t>((place * sizes_.batch + b) * width_);
    }
    [[nodiscard]] std::size_t query_at(std::int64_t b, std::int64_t head, std::int64_t place) const {
        return row_at(b, place) + static_cast<std::size_t>(head * sizes_.head_size);
    }
    [[nodiscard]] std::size_t key_at(std::int64_t b, std::int64_t head, std::int64_t place) const {
        const std::int64_t group = head / (sizes_.heads / sizes_.groups);
        return row_at(b, place) + static_cast<std::size_t>((sizes_.heads + group) * sizes_.head_size);
    }
    [[nodiscard]] std::size_t value_at(std::int64_t b, std::int64_t head, std::int64_t place) const {
        const std::int64_t group = head / (sizes_.heads / sizes_.groups);
        return row_at(b, place) +
               static_cast<std::size_t>((sizes_.heads + sizes_.groups) * sizes_.head_size + group * value_size_);
    }
    static double dot(const Values& left, std::size_t l, const Values& right, std::size_t r, std::int64_t size) {
        double sum = 0;
        for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
            sum += static_cast<double>(left[l + i]) * static_cast<double>(right[r + i]);
        }
        return sum;
    }

    void one_query(std::int64_t b, std::int64_t head, std::int64_t place) {
        const std::size_t query = query_at(b, head, place);
        const auto out = static_cast<std::size_t>(((place * sizes_.batch + b) * sizes_.heads + head) * value_size_);
        Doubles weights;
        double sum = 0;
        for (std::int64_t j = 0; j <= place; ++j) {
            weights.push_back(
                std::exp(sizes_.value * dot(packed, query, packed, key_at(b, head, j), sizes_.head_size)));
            sum += weights.back();
        }
        statistics[static_cast<std::size_t>((b * sizes_.heads + head) * sizes_.sequence + place)] = std::log(sum);
        Doubles d_weights;
        double mean = 0;  // of the weights' gradients, by weight
        for (std::int64_t j = 0; j <= place; ++j) {
            double& weight = weights[static_cast<std::size_t>(j)];
            weight /= sum;
            d_weights.push_back(dot(d_output, out, packed, value_at(b, head, j), value_size_));
            mean += weight * d_weights.back();
        }
        for (std::int64_t j = 0; j <= place; ++j) {
            const double weight = weights[static_cast<std::size_t>(j)];
            const double d_score = weight * (d_weights[static_cast<std::size_t>(j)] - mean) * sizes_.value;
            add(query, out, key_at(b, head, j), value_at(b, head, j), weight, d_score);
        }
    }
    void add(std::size_t query, std::size_t out, std::size_t key, std::size_t value, double weight, double d_score) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(value_size_); ++i) {
            output[out + i] += weight * static_cast<double>(packed[value + i]);
            d_packed[value + i] += weight * static_cast<double>(d_output[out + i]);
        }
        for (std::size_t i = 0; i < static_cast<std::size_t>(sizes_.head_size); ++i) {
            d_packed[query + i] += d_score * static_cast<double>(packed[key + i]);
            d_packed[key + i] += d_score * static_cast<double>(packed[query + i]);
        }
    }
};

class AttentionGpu : public WorkloadGpu {
protected:
    void expect_right(const CallSizes& sizes) {
        const Reference reference(sizes);
        const Buffer packed = bf16_buffer(reference.packed);
        const Buffer output = empty_bf16(static_cast<std::int64_t>(reference.output.size()));
        const Buffer statistics = empty_fp32(static_cast<std::int64_t>(reference.statistics.size()));
        const Buffer workspace(kWorkspace);
        run(Call::attention_forward, sizes, {&packed, &output, &statistics, &workspace});
        // Weights are rounded to bf16 before they meet the values: 2^-9 of sums of numbers of size one.
        expect_close(output.read_bf16(), reference.output, 1.0 / 128, 1e-2);
        expect_close(statistics.read<float>(), reference.statistics, 1e-3, 1e-3);
        const Buffer d_output = bf16_buffer(reference.d_output);
        const Buffer d_packed = empty_bf16(static_cast<std::int64_t>(reference.packed.size()));
        run(Call::attention_backward, sizes, {&packed, &output, &statistics, &d_output, &d_packed, &workspace});
        expect_close(d_packed.read_bf16(), reference.d_packed, 1.0 / 32, 5e-2);
    }
};

TEST_F(AttentionGpu, IsCausalSoftmaxForwardAndBackward) {
    expect_right(sizes_of(1, 128, 4, 4, 64));
    expect_right(sizes_of(1, 192, 2, 2, 128));
}

TEST_F(AttentionGpu, SharesKeysAndValuesInGroupsAndKeepsTheSequencesOfABatchApart) {
    expect_right(sizes_of(2, 128, 8, 2, 64));
}

// Multi-latent attention: every head has its own key, and a value narrower than that.
TEST_F(AttentionGpu, TakesValuesNarrowerThanKeys) {
    expect_right(sizes_of(1, 192, 4, 4, 192, 128));
    expect_right(sizes_of(2, 128, 2, 2, 192, 128));
}

TEST_F(AttentionGpu, GivesTheSameGradientEveryTimeWithNarrowValues) {
    CallSizes sizes = sizes_of(1, 1024, 4, 4, 192, 128);
    const Buffer packed = bf16_buffer(random_values(1024 * 4 * 512, 1));
    const Buffer d_output = bf16_buffer(random_values(1024 * 512, 2));
    const Buffer output = empty_bf16(1024 * 512);
    const Buffer statistics = empty_fp32(4 * 1024);
    const Buffer workspace(kWorkspace);
    run(Call::attention_forward, sizes, {&packed, &output, &statistics, &workspace});
    std::vector<std::uint64_t> digests;
    for (int round = 0; round < 5; ++round) {
        const Buffer d_packed = empty_bf16(1024 * 4 * 512);
        run(Call::attention_backward, sizes, {&packed, &output, &statistics, &d_output, &d_packed, &workspace});
        digests.push_back(d_packed.digest());
    }
    EXPECT_EQ(digests, std::vector<std::uint64_t>(5, digests[0]));
}

// What the planner gives is enough for all heads of the part that it allows.
TEST_F(AttentionGpu, DoesWithTheScratchMemoryThatIsPlannedForNarrowValues) {
    layers::Dimensions dim;
    dim.micro_batch = 1;
    dim.sequence = 1000;
    dim.heads = dim.groups = 16;
    dim.head_size = 192;
    dim.value_head_size = 128;
    CallSizes sizes = sizes_of(1, 1000, 16, 16, 192, 128);
    sizes.workspace_bytes = layers::attention_backward_workspace(dim);
    const CallShape backward{Call::attention_backward, sizes};
    const AttentionWorkspace used = workload().prepare({&backward, 1}).front().workspace;
    EXPECT_EQ(used.parts, 1);
    EXPECT_LE(used.whole_bytes, sizes.workspace_bytes);
    RecordProperty("bytes", std::to_string(used.whole_bytes));
}

// Heads of a group go together, so nothing is added across parts. The library may choose other tiles for fewer heads,
// hence not the same bits.
TEST_F(AttentionGpu, GivesTheSameGradientInParts) {
    CallSizes sizes = sizes_of(1, 512, 8, 8, 64);
    const Buffer packed = bf16_buffer(random_values(512 * 3 * 512, 1));
    const Buffer d_output = bf16_buffer(random_values(512 * 512, 2));
    const Buffer output = empty_bf16(512 * 512);
    const Buffer statistics = empty_fp32(8 * 512);
    const Buffer workspace(kWorkspace);
    run(Call::attention_forward, sizes, {&packed, &output, &statistics, &workspace});
    const CallShape whole{Call::attention_backward, sizes};
    const AttentionWorkspace at_once = workload().prepare({&whole, 1}).front().workspace;
    ASSERT_EQ(at_once.parts, 1);
    std::vector<Values> gradients;
    for (int round = 0; round < 2; ++round) {
        const Buffer d_packed = empty_bf16(512 * 3 * 512);
        run(Call::attention_backward, sizes, {&packed, &output, &statistics, &d_output, &d_packed, &workspace});
        gradients.push_back(d_packed.read_bf16());
        sizes.workspace_bytes = at_once.whole_bytes - 1;
    }
    const CallShape less{Call::attention_backward, sizes};
    const AttentionWorkspace in_parts = workload().prepare({&less, 1}).front().workspace;
    EXPECT_GT(in_parts.parts, 1);
    EXPECT_LE(in_parts.used_bytes, sizes.workspace_bytes);
    expect_close(gradients[1], Doubles(gradients[0].begin(), gradients[0].end()), 1.0 / 64, 1e-2);
}

TEST_F(AttentionGpu, GivesTheSameGradientEveryTime) {
    const CallSizes sizes = sizes_of(1, 1024, 4, 4, 64);
    const Buffer packed = bf16_buffer(random_values(1024 * 768, 1));
    const Buffer d_output = bf16_buffer(random_values(1024 * 256, 2));
    const Buffer output = empty_bf16(1024 * 256);
    const Buffer statistics = empty_fp32(4 * 1024);
    const Buffer workspace(kWorkspace);
    run(Call::attention_forward, sizes, {&packed, &output, &statistics, &workspace});
    std::vector<std::uint64_t> digests;
    for (int round = 0; round < 5; ++round) {
        const Buffer d_packed = empty_bf16(1024 * 768);
        run(Call::attention_backward, sizes, {&packed, &output, &statistics, &d_output, &d_packed, &workspace});
        digests.push_back(d_packed.digest());
    }
    EXPECT_EQ(digests, std::vector<std::uint64_t>(5, digests[0]));
}

TEST_F(AttentionGpu, SaysHowMuchWorkspaceItNeeds) {
    CallSizes sizes = sizes_of(1, 512, 1, 1, 64);
    const CallShape enough{Call::attention_backward, sizes};
    const std::int64_t needed = workload().prepare({&enough, 1}).front().workspace.whole_bytes;
    ASSERT_GT(needed, 0);
    sizes.workspace_bytes = needed - 1;
    const CallShape less{Call::attention_backward, sizes};
    try {
        workload().prepare({&less, 1});
        FAIL() << "one group cannot be split";
    } catch (const DeviceError& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("needs " + std::to_string(needed) + " bytes of workspace"), std::string::npos)
            << message;
        EXPECT_NE(message.find("the program gives " + std::to_string(needed - 1)), std::string::npos) << message;
    }
}

}  // namespace
}  // namespace stowage::executor
