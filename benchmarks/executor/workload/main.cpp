// What each call of the workload costs on this device, at the sizes of an 8-billion-parameter layer: 4096 tokens,
// hidden 4096, SwiGLU of 14336, 32 heads of 128 (and 8 groups), a vocabulary of 128256. After a second of load, since
// clocks fall under it. Prints a table: median time of a call, and memory or arithmetic rate by the bytes and
// operations that the call needs at least.
//
//   executor_workload_benchmark [TABLE.json] [experts|fp8]  (the file keeps the GEMM algorithms)
//
// With `experts`: only layers of experts, 8192 tokens with 8 choices (moe_lines.cpp). With `fp8`: the linears of that
// layer in FP8 beside bf16, and what turns tensors into FP8 (fp8_lines.cpp).

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/executor/workload/benchmark_line.hpp"
#include "executor/cuda/device.hpp"
#include "executor/cuda/event.hpp"
#include "executor/workload/device_memory.hpp"
#include "executor/workload/gemm_key.hpp"
#include "executor/workload/workload.hpp"

namespace {

using namespace stowage::executor;  // NOLINT(google-build-using-namespace): one file, one purpose
using stowage::layers::Call;
using stowage::layers::CallSizes;
using stowage::types::DataType;

constexpr std::int64_t kTokens = 4096;
constexpr std::int64_t kHidden = 4096;
constexpr std::int64_t kFfn = 14336;
constexpr std::int64_t kHeads = 32;
constexpr std::int64_t kHeadSize = 128;
constexpr std::int64_t kVocabulary = 128256;
constexpr int kRounds = 9;

constexpr std::int64_t kHiddenBytes = 2 * kTokens * kHidden;

std::vector<Line> norm_lines() {
    CallSizes sizes = matrix(kTokens, kHidden);
    sizes.value = 1e-5;
    sizes.gradient_type = DataType::fp32;
    CallSizes backward = sizes;
    backward.has_addend = true;
    const std::int64_t partials = 4 * stowage::layers::norm_partials(kTokens) * kHidden;
    return {memory_line("RMSNorm forward", Call::norm_forward, sizes,
                        {kHiddenBytes, 2 * kHidden, kHiddenBytes, 4 * kTokens}, 2 * kHiddenBytes),
            memory_line("RMSNorm backward + residual", Call::norm_backward, backward,
                        {kHiddenBytes, 2 * kHidden, 4 * kTokens, kHiddenBytes, kHiddenBytes, kHiddenBytes, 4 * kHidden,
                         partials},
                        4 * kHiddenBytes)};
}

std::vector<Line> element_lines() {
    CallSizes gated = matrix(kTokens, kFfn);
    gated.gated = true;
    const std::int64_t narrow = 2 * kTokens * kFfn;
    CallSizes rotary = matrix(kTokens, 0);
    rotary.batch = 1;
    rotary.sequence = kTokens;
    rotary.heads = kHeads;
    rotary.groups = kHeads;
    rotary.head_size = kHeadSize;
    CallSizes square = matrix(kTokens, kHidden);
    square.value = 1;
    const std::int64_t turned = 2 * kHiddenBytes;  // queries and keys
    return {
        memory_line("SwiGLU forward", Call::activation_forward, gated, {2 * narrow, narrow}, 3 * narrow),
        memory_line("SwiGLU backward", Call::activation_backward, gated, {2 * narrow, narrow, 2 * narrow, narrow},
                    6 * narrow),
        memory_line("rotary, in place", Call::rotary_forward, rotary, {3 * kHiddenBytes, 4 * kTokens * kHeadSize},
                    2 * turned),
        memory_line("load hidden states", Call::load_hidden, square, {kHiddenBytes}, kHiddenBytes),
        memory_line("mean square forward", Call::mean_square_forward, square, {kHiddenBytes, 4, 4 * 264}, kHiddenBytes),
        memory_line("mean square backward", Call::mean_square_backward, square, {kHiddenBytes, kHiddenBytes},
                    2 * kHiddenBytes)};
}

std::vector<Line> token_lines() {
    CallSizes embedding = matrix(kTokens, kHidden);
    embedding.depth = kVocabulary;
    embedding.gradient_type = DataType::fp32;
    CallSizes entropy = matrix(kTokens, kVocabulary);
    entropy.value = 1.0 / static_cast<double>(kTokens);
    const std::int64_t table = kVocabulary * kHidden;
    const std::int64_t logits = 2 * kTokens * kVocabulary;
    CallSizes bias = matrix(kTokens, 2 * kFfn);
    bias.gradient_type = DataType::fp32;
    return {memory_line("embedding forward", Call::embedding_forward, embedding, {4 * kTokens, 2 * table, kHiddenBytes},
                        2 * kHiddenBytes),
            memory_line("embedding backward, fp32", Call::embedding_backward, embedding,
                        {4 * kTokens, kHiddenBytes, 4 * table}, 5 * kHiddenBytes),
            memory_line("cross entropy forward", Call::cross_entropy_forward, entropy,
                        {logits, 4 * kTokens, 4 * kTokens, 4}, logits),
            memory_line("cross entropy backward", Call::cross_entropy_backward, entropy,
                        {logits, 4 * kTokens, 4 * kTokens}, 2 * logits),
            memory_line("bias gradient, 28672 columns", Call::bias_gradient, bias,
                        {4 * kTokens * kFfn, 8 * kFfn, 4 * 264 * 2 * kFfn}, 4 * kTokens * kFfn)};
}

void add_linear(std::vector<Line>& lines, const std::string& name, std::int64_t columns, std::int64_t depth,
                bool addend) {
    CallSizes sizes = matrix(kTokens, columns);
    sizes.depth = depth;
    sizes.workspace_bytes = kWorkspace;
    const std::int64_t a = 2 * kTokens * depth;
    const std::int64_t weight = 2 * columns * depth;
    const std::int64_t y = 2 * kTokens * columns;
    const double flops = 2.0 * static_cast<double>(kTokens) * static_cast<double>(columns) * static_cast<double>(depth);
    CallSizes forward = sizes;
    forward.has_addend = addend;
    std::vector<std::int64_t> operands = {a, weight, y, kWorkspace};
    if (addend) operands.insert(operands.begin() + 2, y);
    lines.push_back(
        {name + " forward" + (addend ? " + residual" : ""), Call::linear_forward, forward, operands, 0, flops});
    lines.push_back(
        {name + " input gradient", Call::linear_input_gradient, sizes, {y, weight, a, kWorkspace}, 0, flops});
    lines.push_back(
        {name + " weight gradient, bf16", Call::linear_weight_gradient, sizes, {y, a, weight, kWorkspace}, 0, flops});
    sizes.gradient_type = DataType::fp32;
    lines.push_back({name + " weight gradient, fp32",
                     Call::linear_weight_gradient,
                     sizes,
                     {y, a, 2 * weight, kWorkspace},
                     0,
                     flops});
}

CallSizes attention_sizes(std::int64_t groups, std::int64_t workspace) {
    CallSizes sizes = matrix(kTokens, 0);
    sizes.batch = 1;
    sizes.sequence = kTokens;
    sizes.heads = kHeads;
    sizes.groups = groups;
    sizes.head_size = kHeadSize;
    sizes.value = 1.0 / std::sqrt(static_cast<double>(kHeadSize));
    sizes.workspace_bytes = workspace;
    return sizes;
}

/// The backward with several workspaces: the fewer bytes, the fewer heads at a time.
std::vector<Line> attention_lines(std::int64_t groups) {
    const std::int64_t packed = 2 * kTokens * (kHeads + 2 * groups) * kHeadSize;
    const std::int64_t statistics = 4 * kTokens * kHeads;
    // Half of the pairs of places, two products forward and five backward.
    const double product = static_cast<double>(kHeads) * static_cast<double>(kTokens) * static_cast<double>(kTokens) *
                           static_cast<double>(kHeadSize);
    std::vector<Line> lines;
    lines.push_back({fmt::format("attention forward, {} groups", groups),
                     Call::attention_forward,
                     attention_sizes(groups, kWorkspace),
                     {packed, kHiddenBytes, statistics, kWorkspace},
                     0,
                     2 * product});
    for (const std::int64_t workspace : {2048 * kMiB, 640 * kMiB, 320 * kMiB, 192 * kMiB, 144 * kMiB}) {
        lines.push_back({fmt::format("attention backward, {} groups, {} MiB", groups, workspace / kMiB),
                         Call::attention_backward,
                         attention_sizes(groups, workspace),
                         {packed, kHiddenBytes, statistics, kHiddenBytes, packed, workspace},
                         0,
                         5 * product});
    }
    return lines;
}

std::vector<Line> all_lines() {
    std::vector<Line> lines;
    for (const auto& group : {norm_lines(), element_lines(), token_lines(), attention_lines(32), attention_lines(8)}) {
        lines.insert(lines.end(), group.begin(), group.end());
    }
    add_linear(lines, "QKV 12288 x 4096", 3 * kHidden, kHidden, false);
    add_linear(lines, "projection 4096 x 4096", kHidden, kHidden, true);
    add_linear(lines, "fc1 28672 x 4096", 2 * kFfn, kHidden, false);
    add_linear(lines, "fc2 4096 x 14336", kHidden, kFfn, true);
    return lines;
}

/// Every operand of a line in one allocation; filled with numbers like hidden states, tokens with tokens.
class Operands {
public:
    Operands(Workload& workload, const Line& line, void* arena, cudaStream_t stream) {
        auto* at = static_cast<std::byte*>(arena);
        for (const std::int64_t bytes : line.buffer_bytes) {
            pointers_.push_back(at);
            at += (bytes + 255) / 256 * 256;
        }
        const std::int64_t total = at - static_cast<std::byte*>(arena);
        void* all = arena;
        workload.launch(Call::load_hidden, matrix(1, total / 2), {&all, 1}, stream, {});
        CallSizes tokens = matrix(kTokens, kVocabulary);
        const bool is_embedding = line.call == Call::embedding_forward || line.call == Call::embedding_backward;
        const bool is_entropy = line.call == Call::cross_entropy_forward || line.call == Call::cross_entropy_backward;
        if (is_embedding) workload.launch(Call::load_tokens, tokens, {pointers_.data(), 1}, stream, {});
        if (line.call == Call::attention_backward) run_forward(workload, line, stream);
        if (is_entropy) workload.launch(Call::load_tokens, tokens, {&pointers_[1], 1}, stream, {});
        for (std::size_t i = 0; i < line.integers.size(); ++i) {
            if (line.integers[i].empty()) continue;
            check(cudaMemcpyAsync(pointers_[i], line.integers[i].data(), 4 * line.integers[i].size(),
                                  cudaMemcpyHostToDevice, stream),
                  "writing an operand");
        }
    }
    [[nodiscard]] std::span<void* const> get() const { return pointers_; }

private:
    /// So that the backward sees an output and statistics that belong to its input.
    void run_forward(Workload& workload, const Line& line, cudaStream_t stream) {
        const std::vector<void*> buffers = {pointers_[0], pointers_[1], pointers_[2], pointers_[5]};
        workload.launch(Call::attention_forward, attention_sizes(line.sizes.groups, kWorkspace), buffers, stream, {});
    }

    std::vector<void*> pointers_;
};

std::int64_t bytes_of(const Line& line) {
    std::int64_t total = 0;
    for (const std::int64_t bytes : line.buffer_bytes) total += (bytes + 255) / 256 * 256;
    return total;
}

class Benchmark {
public:
    explicit Benchmark(const std::string& table)
        : workload_({.device = 0, .gemm_table = table, .seed = 1}), start_(EventTiming::on), end_(EventTiming::on) {}

    void run(std::vector<Line> lines) {
        prepare(lines);
        std::int64_t most = 0;
        for (const Line& line : lines) most = std::max(most, bytes_of(line));
        arena_ = allocate_on_device(most, "allocating operands");
        warm_up(lines.back());
        fmt::print("{:<46} {:>10} {:>10} {:>10}\n", "call", "us", "GB/s", "TFLOP/s");
        for (const Line& line : lines) print(line);
    }

private:
    void prepare(std::vector<Line>& lines) {
        std::vector<CallShape> shapes;
        for (const Line& line : lines) shapes.push_back({line.call, line.sizes});
        for (const PreparedAttention& one : workload_.prepare(shapes)) {
            fmt::print("{}, {} groups, {} MiB given: whole {} bytes, used {} bytes, {} parts\n",
                       stowage::layers::name_of(one.shape.call), one.shape.sizes.groups,
                       one.shape.sizes.workspace_bytes / kMiB, one.workspace.whole_bytes, one.workspace.used_bytes,
                       one.workspace.parts);
        }
        for (const auto& [key, algorithm] : workload_.gemm_table().entries) {
            fmt::print("{}: algorithm {}, tile {}, stages {}, cluster {}, split {}, {:.1f} us, {} bytes of workspace\n",
                       to_string(key), algorithm.id, algorithm.tile, algorithm.stages, algorithm.cluster,
                       algorithm.split_k, algorithm.microseconds, algorithm.workspace_bytes);
        }
    }

    void launch(const Line& line, const Operands& operands) {
        workload_.launch(line.call, line.sizes, operands.get(), stream_.get(), {});
    }

    void warm_up(const Line& line) {
        const Operands operands(workload_, line, arena_.get(), stream_.get());
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
        while (std::chrono::steady_clock::now() < until) {
            for (int i = 0; i < 20; ++i) launch(line, operands);
            stream_.synchronize();
        }
    }

    /// Microseconds of one call: the median of rounds of several calls, so that launching costs nothing.
    double measure(const Line& line) {
        const Operands operands(workload_, line, arena_.get(), stream_.get());
        for (int i = 0; i < 3; ++i) launch(line, operands);
        constexpr int kCalls = 8;
        std::vector<double> times;
        for (int round = 0; round < kRounds; ++round) {
            start_.record(stream_.ref());
            for (int i = 0; i < kCalls; ++i) launch(line, operands);
            end_.record(stream_.ref());
            end_.synchronize();
            times.push_back(static_cast<double>(elapsed(start_.ref(), end_.ref()).count()) / 1e3 / kCalls);
        }
        std::ranges::sort(times);
        return times[times.size() / 2];
    }

    void print(const Line& line) {
        const double microseconds = measure(line);
        const auto rate = [&](double amount, double unit) {
            return amount > 0 ? fmt::format("{:.0f}", amount / microseconds / unit) : std::string("-");
        };
        fmt::print("{:<46} {:>10.1f} {:>10} {:>10}\n", line.name, microseconds, rate(line.bytes, 1e3),
                   rate(line.flops, 1e6));
    }

    Workload workload_;
    Stream stream_;
    Event start_;
    Event end_;
    DeviceMemory arena_;
};

/// By what the command line asks for.
std::vector<Line> lines_of(const std::string& group) {
    if (group == "experts") return moe_lines();
    if (group == "attention") {
        std::vector<Line> lines = attention_lines(32);
        for (Line& line : attention_lines(8)) lines.push_back(std::move(line));
        return lines;
    }
    return group == "fp8" ? fp8_lines() : all_lines();
}

}  // namespace

int main(int count, char** arguments) {
    try {
        if (const auto reason = no_device_reason()) {
            fmt::print(stderr, "{}\n", *reason);
            return 5;
        }
        Benchmark(count > 1 ? arguments[1] : "").run(lines_of(count > 2 ? arguments[2] : ""));
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
