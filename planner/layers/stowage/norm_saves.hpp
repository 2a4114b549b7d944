#pragma once

// What a norm of stowage's layers keeps for its backward: its input, one or two fp32 numbers a row, and its output for
// the weight gradient of the linear behind it; or the input alone, and the norm runs once more.

#include <optional>

#include "planner/layers/stowage/stowage_writer.hpp"

namespace stowage::layers {

class NormSaves {
public:
    /// Keeps a reference to the writer. `again`: output and statistics are not saved but made a second time.
    NormSaves(StowageWriter& writer, const StowageNorm& norm, bool again)
        : writer_(writer), norm_(norm), again_(again) {}

    [[nodiscard]] bool again() const { return again_; }
    /// The forward; saves the input in `group`, and the statistics. The variable of the output stays.
    void forward(Slot input, std::optional<Module> group);
    /// Saves the output in `group`, unless it is made again.
    void save_output(std::optional<Module> group);
    /// In the backward, before `output`: runs the norm again where its output was not saved.
    void remake();
    /// The output for a kernel of the backward, there until `forget_output`.
    CallOperand output();
    void forget_output();
    /// The input for a kernel of the backward, behind `remake`.
    [[nodiscard]] CallOperand input() const { return writer_.script.operand(input_); }
    /// Allocates `gradients.input`; lets go of the rest.
    void backward(const NormGradients& gradients);

private:
    [[nodiscard]] CallOperand statistic(const std::optional<SavedIndex>& saved, Slot made) const;

    StowageWriter& writer_;
    StowageNorm norm_;
    bool again_;
    SavedIndex input_{};
    std::optional<SavedIndex> rstd_;
    std::optional<SavedIndex> mean_;
    std::optional<SavedIndex> output_;
};

}  // namespace stowage::layers
