#pragma once

// One line of the workload's benchmark: a call, its operands, and what it moves and computes at least.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/workload/workload.hpp"

namespace stowage::executor {

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;
inline constexpr std::int64_t kWorkspace = 32 * kMiB;

struct Line {
    std::string name;
    layers::Call call = layers::Call::none;
    layers::CallSizes sizes;
    std::vector<std::int64_t> buffer_bytes;             ///< of each operand
    double bytes = 0;                                   ///< moved at least
    double flops = 0;                                   ///< multiplications and additions
    std::vector<std::vector<std::int32_t>> integers{};  ///< by operand: what it holds, if not empty
};

inline layers::CallSizes matrix(std::int64_t rows, std::int64_t columns) {
    layers::CallSizes sizes;
    sizes.rows = rows;
    sizes.columns = columns;
    return sizes;
}

inline Line memory_line(std::string name, layers::Call call, const layers::CallSizes& sizes,
                        std::vector<std::int64_t> buffers, std::int64_t bytes) {
    return {std::move(name), call, sizes, std::move(buffers), static_cast<double>(bytes), 0};
}

/// Calls of layers with experts, and the dense products that theirs are compared with.
std::vector<Line> moe_lines();

/// Linears in FP8 beside the same in bf16, and what turns their factors into FP8.
std::vector<Line> fp8_lines();

}  // namespace stowage::executor
