#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/layers/writer.hpp"

namespace stowage::layers {

/// What a norm leaves for its backward: its input and one fp32 number per row (RMSNorm) or two (LayerNorm).
struct SavedNorm {
    std::string name;
    std::int64_t rows = 0;
    std::int64_t width = 0;
    SavedIndex input{};
    std::vector<SavedIndex> statistics;
};

/// The statistics of a norm over `rows` rows: allocated, filled by the norm's kernel.
struct NormStatistics {
    std::vector<Slot> slots;
};

/// Allocates the statistics and launches the norm: reads `rows * width` elements and writes as many.
NormStatistics run_norm(Writer& writer, const std::string& name, std::int64_t rows, std::int64_t width);

/// Saves a norm's input and statistics and drops the variables of the statistics.
SavedNorm save_norm(Writer& writer, const std::string& name, std::int64_t rows, std::int64_t width, Slot input,
                    const NormStatistics& statistics, std::optional<Module> group);

/// Gradient of the input into a tensor that is already allocated; gradients of scale and bias accumulate; forgets.
void norm_backward(Writer& writer, const SavedNorm& saved);

}  // namespace stowage::layers
