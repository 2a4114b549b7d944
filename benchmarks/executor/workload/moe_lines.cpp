// 8192 tokens that choose 8 experts of 128, as a permutation that spreads them evenly; rows of 2048 to 7168; and the
// products of 8 to 16 experts with 512 and 4096 rows each, beside one dense product of the same arithmetic.

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "benchmarks/executor/workload/benchmark_line.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using types::DataType;
using Integers = std::vector<std::int32_t>;

constexpr std::int64_t kTokens = 8192;
constexpr std::int64_t kChoices = 8;
constexpr std::int64_t kExperts = 128;
constexpr std::int64_t kRows = kTokens * kChoices;

struct Routing {
    Routing() : sources(static_cast<std::size_t>(kRows)), places(sources.size()) {
        for (std::int64_t t = 0; t < kTokens; ++t) {
            for (std::int64_t k = 0; k < kChoices; ++k) {
                // Each token's experts lie 16 apart, and where they begin changes from token to token.
                assignment.push_back(static_cast<std::int32_t>((t * 37 + k * 16) % kExperts));
            }
        }
        std::iota(sources.begin(), sources.end(), 0);
        std::ranges::stable_sort(sources, {}, [&](std::int32_t c) { return assignment[static_cast<std::size_t>(c)]; });
        for (std::size_t i = 0; i < sources.size(); ++i) {
            places[static_cast<std::size_t>(sources[i])] = static_cast<std::int32_t>(i);
        }
    }
    Integers assignment;
    Integers sources;
    Integers places;
};

CallSizes routed(std::int64_t columns) {
    CallSizes sizes = matrix(kTokens, columns);
    sizes.experts = kExperts;
    sizes.topk = kChoices;
    sizes.value = 1;
    return sizes;
}

Line with_integers(Line line, std::size_t operand, const Integers& values) {
    line.integers.resize(line.buffer_bytes.size());
    line.integers[operand] = values;
    return line;
}

void add_router_lines(std::vector<Line>& lines, const Routing& routing) {
    const std::int64_t logits = 4 * kTokens * kExperts;
    const std::int64_t choices = 4 * kRows;
    CallSizes grouped = routed(0);
    grouped.sigmoid = true;
    grouped.router_groups = 8;
    grouped.router_topk_groups = 4;
    lines.push_back(with_integers(memory_line("router forward, softmax", Call::router_forward, routed(0),
                                              {logits, choices, choices, choices}, logits + 3 * choices),
                                  1, routing.assignment));
    lines.push_back(with_integers(memory_line("router forward, sigmoid, 4 of 8 groups", Call::router_forward, grouped,
                                              {logits, choices, choices, choices}, logits + 3 * choices),
                                  1, routing.assignment));
    lines.push_back(with_integers(memory_line("router backward, softmax", Call::router_backward, routed(0),
                                              {logits, choices, choices, logits / 2}, logits / 2 + 2 * choices),
                                  1, routing.assignment));
    lines.push_back(with_integers(
        memory_line("route rows", Call::route_rows, routed(0), {choices, choices, choices, 4 * kExperts}, 3 * choices),
        0, routing.assignment));
}

void add_row_lines(std::vector<Line>& lines, const Routing& routing, std::int64_t columns) {
    const std::int64_t narrow = 2 * kTokens * columns;
    const std::int64_t wide = 2 * kRows * columns;
    const std::int64_t choices = 4 * kRows;
    const auto name = [&](const char* what) { return fmt::format("{}, {} columns", what, columns); };
    lines.push_back(with_integers(memory_line(name("permute forward"), Call::permute_forward, routed(columns),
                                              {narrow, choices, choices, wide, choices}, narrow + wide + 3 * choices),
                                  2, routing.sources));
    lines.push_back(with_integers(memory_line(name("permute backward"), Call::permute_backward, routed(columns),
                                              {wide, choices, choices, narrow, choices}, narrow + wide + 3 * choices),
                                  2, routing.places));
    CallSizes residual = routed(columns);
    residual.has_addend = true;
    lines.push_back(with_integers(memory_line(name("unpermute forward + residual"), Call::unpermute_forward, residual,
                                              {wide, choices, narrow, narrow}, 2 * narrow + wide + choices),
                                  1, routing.places));
    lines.push_back(with_integers(memory_line(name("unpermute backward"), Call::unpermute_backward, routed(columns),
                                              {narrow, choices, wide}, narrow + wide + choices),
                                  1, routing.sources));
    CallSizes exchange = matrix(kRows, columns);
    exchange.depth = kRows;
    exchange.batch = 8;
    exchange.experts = kExperts / 8;
    exchange.forward = true;
    lines.push_back(memory_line(name("exchange rows, 8 ranks"), Call::exchange_rows, exchange,
                                {wide, choices, wide, choices}, 2 * wide + 2 * choices));
}

void add_activation_lines(std::vector<Line>& lines, std::int64_t columns) {
    const CallSizes sizes = matrix(kRows, columns);
    const std::int64_t narrow = 2 * kRows * columns;
    lines.push_back(memory_line(fmt::format("weighted SwiGLU forward, {} columns", columns),
                                Call::weighted_activation_forward, sizes, {2 * narrow, 4 * kRows, narrow}, 3 * narrow));
    lines.push_back(memory_line(fmt::format("weighted SwiGLU backward, {} columns", columns),
                                Call::weighted_activation_backward, sizes,
                                {2 * narrow, 4 * kRows, narrow, 2 * narrow, narrow, 4 * kRows}, 6 * narrow));
}

struct GroupedCalls {
    Call grouped;
    Call dense;
    const char* name;
};

/// The dense one has all rows and one expert's weights: the same arithmetic.
void add_product_lines(std::vector<Line>& lines, std::int64_t experts, std::int64_t rows, std::int64_t columns,
                       std::int64_t depth) {
    CallSizes sizes = matrix(rows, columns);
    sizes.depth = depth;
    sizes.experts = experts;
    sizes.workspace_bytes = kWorkspace;
    sizes.gradient_type = DataType::fp32;
    const std::int64_t a = 2 * rows * depth;
    const std::int64_t y = 2 * rows * columns;
    const std::int64_t weight = 2 * columns * depth;
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(depth);
    for (const auto& [grouped, dense, name] :
         {GroupedCalls{Call::grouped_linear_forward, Call::linear_forward, "forward"},
          GroupedCalls{Call::grouped_linear_input_gradient, Call::linear_input_gradient, "input gradient"},
          GroupedCalls{Call::grouped_linear_weight_gradient, Call::linear_weight_gradient, "weight gradient"}}) {
        for (const bool one : {false, true}) {
            const std::int64_t weights = one ? weight : experts * weight;
            std::vector<std::int64_t> buffers = {a, weights, y, kWorkspace};
            if (grouped == Call::grouped_linear_input_gradient) buffers = {y, weights, a, kWorkspace};
            if (grouped == Call::grouped_linear_weight_gradient) buffers = {y, a, 2 * weights, kWorkspace};
            CallSizes of_line = sizes;
            if (one) of_line.experts = 0;
            lines.push_back(
                {fmt::format("{} {}, {} x {} x {}", one ? std::string("dense") : fmt::format("{} experts", experts),
                             name, rows, columns, depth),
                 one ? dense : grouped, of_line, buffers, 0, flops});
        }
    }
}

}  // namespace

std::vector<Line> moe_lines() {
    const Routing routing;
    std::vector<Line> lines;
    add_router_lines(lines, routing);
    for (const std::int64_t columns : {2048, 4096, 7168}) add_row_lines(lines, routing, columns);
    for (const std::int64_t columns : {768, 1536, 2048}) add_activation_lines(lines, columns);
    add_product_lines(lines, 16, 16 * 512, 2 * 768, 2048);  // Qwen3-30B-A3B
    add_product_lines(lines, 16, 16 * 4096, 2 * 768, 2048);
    add_product_lines(lines, 8, 8 * 512, 2 * 1536, 4096);      // Qwen3-235B-A22B
    add_product_lines(lines, 8, 8 * 512 + 3, 2 * 1536, 4096);  // different rows
    add_product_lines(lines, 8, 8 * 512, 2 * 2048, 7168);      // DeepSeek-V3
    add_product_lines(lines, 8, 8 * 512, 7168, 2048);
    return lines;
}

}  // namespace stowage::executor
