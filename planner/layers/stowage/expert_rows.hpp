#pragma once

// Rows of tokens between a rank's tokens and its experts, in stowage's layers.
//
// A rank's own copies lie by expert of the model, expert_tokens rows by expert of this rank. What absent ranks would
// send is a modelled all-to-all and copies of local rows; what a padded expert lacks is copies of its rows too. With
// every expert at home and no padding both are the same rows, and nothing moves.
//
// Tested by: tests/planner/layers/stowage_moe_test.cpp.

#include <optional>
#include <string>

#include "planner/layers/stowage/stowage_writer.hpp"

namespace stowage::layers {

/// Rows [n, h], and one fp32 number for each where they are weighted.
struct ExpertRows {
    Slot rows{};
    std::optional<Slot> weights;
};

/// Choices of this rank's tokens: tokens times topk.
std::int64_t chosen_rows(const Dimensions& dim);
/// Most rows that one expert may get from one rank without any buffer running over.
std::int64_t planned_expert_rows(const Dimensions& dim);

/// Sizes of a call without batch and sequence.
CallSizes row_sizes(const StowageWriter& writer, std::int64_t rows, std::int64_t columns);

/// Declares and allocates.
ExpertRows make_expert_rows(StowageWriter& writer, const std::string& name, std::int64_t count, bool weighted);
void drop_expert_rows(StowageWriter& writer, const ExpertRows& rows);

/// From chosen_rows to expert_tokens, and back. Drops `rows` where they move.
ExpertRows rows_to_experts(StowageWriter& writer, const std::string& name, const ExpertRows& rows);
ExpertRows rows_from_experts(StowageWriter& writer, const std::string& name, const ExpertRows& rows);

}  // namespace stowage::layers
