#pragma once

// Runs of small shipped models on a device, for tests that hold one way to run a step against another.

#include <cstdint>
#include <string>
#include <vector>

#include "executor/engine/engine.hpp"
#include "tests/support/gpu_test.hpp"

namespace stowage::executor {

/// scenarios/NAME.yaml. Tests are carried to machines where the tree lies elsewhere.
types::Scenario shipped_scenario(const std::string& name);

/// Nothing offloaded, every step's gradients digested. `table`: name of the file of GEMM algorithms, one for all runs
/// that are compared.
ExecutionRequest digested_request(types::Scenario scenario, std::int64_t steps, const std::string& table);
ExecutionRequest under_megatron(ExecutionRequest request, const types::ModuleSet& modules);
/// All that these modules have, on planned memory.
ExecutionRequest under_stowage(ExecutionRequest request, const types::ModuleSet& modules);
ExecutionRequest with_graphs(ExecutionRequest request, types::CudaGraphImpl impl,
                             std::vector<types::CudaGraphModule> modules);

recording::Measurement run(const ExecutionRequest& request);
/// The first one's losses and gradients in all of them, bit by bit.
void expect_equal_runs(const std::vector<ExecutionRequest>& requests);

}  // namespace stowage::executor
