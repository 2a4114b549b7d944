#pragma once

// Where the pinned buffers of a program lie in one arena of host memory: exactly as much as lives at one time.
//
// What copies inside graphs use is baked into them and stays; the other stages of a run follow one another and share
// what lies behind it.
//
// Tested by: tests/executor/engine/random_programs_test.cpp.

#include <cstdint>
#include <vector>

#include "planner/program/step_program.hpp"

namespace stowage::executor {

class PinnedLayout {
public:
    /// `first_iteration`: the stages before the steady one are run too.
    explicit PinnedLayout(const program::StepProgram& program, bool first_iteration = true);

    [[nodiscard]] types::Bytes size() const { return size_; }
    /// Of the n-th buffer that the stage acquires.
    [[nodiscard]] types::Bytes offset(program::RunStage stage, std::size_t number) const {
        return offsets_[static_cast<std::size_t>(stage)].at(number);
    }

private:
    types::Bytes size_;
    std::vector<types::Bytes> offsets_[program::kRunStageCount];
};

}  // namespace stowage::executor
