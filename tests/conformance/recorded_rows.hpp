#pragma once

// Device memory that Megatron-LM's own functional tests recorded, for the configurations that this version covers.
// Source: https://github.com/NVIDIA/Megatron-LM, tests/functional_tests/test_cases/*/*, golden values of August 2026:
// the largest mem-allocated-bytes and mem-max-allocated-bytes of the logging rank, the last of the job.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/search/job.hpp"

namespace stowage::tests {

/// Bytes allocated between steps, and at the peak; or the errors of both, as fractions.
template <class Number>
struct Memory {
    Number allocated{};
    Number peak{};
};

/// One test case on one type of GPU.
struct RecordedRow {
    std::string name;  ///< folder of the test case, and the GPU
    types::Scenario scenario;
    bool grouped_gemm = false;        ///< moe-grouped-gemm; without it Megatron runs the experts one by one
    bool fused_accumulation = false;  ///< false: no-gradient-accumulation-fusion
    Memory<std::int64_t> recorded;    ///< peak 0: not comparable
    Memory<double> bar;               ///< the largest error that the prediction may have
    std::string cause{};              ///< of the largest part of an error above 1 %
};

std::vector<RecordedRow> recorded_rows();

/// Predicts a row end to end, layers, program, allocator and simulator, for the last pipeline rank with nothing
/// offloaded. What a row's runs did without is taken off before: the dummy gradients of fused accumulation, and the
/// workspaces of grouped GEMM.
Memory<types::Bytes> predict(const RecordedRow& row);

}  // namespace stowage::tests
