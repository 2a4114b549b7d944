#pragma once

// What another implementation needs to do the same step and to compare: parameters, tokens, losses, gradients.
//
// Files in the folder: step.json (model, batch, precision; for each parameter its name, shape and place), tokens.bin
// and labels.bin (int32, by microbatch; with multi-token prediction later_labels.bin too), parameters.bin (bf16) and
// gradients.bin (bf16 or fp32), both by place; with experts assignment.bin (int32, the experts of each token, the same
// in all microbatches and layers).

#include <cstdint>
#include <string>
#include <vector>

#include "executor/engine/execution.hpp"
#include "executor/engine/machine.hpp"
#include "executor/engine/parameters.hpp"

namespace stowage::executor {

/// Addresses on the device, which is idle.
struct DumpedStep {
    const std::vector<PlacedParameter>& parameters;
    Address weights = 0;
    Address gradients = 0;
    Bytes gradient_bytes;
    std::vector<double> losses;
    Address assignment = 0;  ///< of tokens to experts; 0: there is none
    Bytes assignment_bytes;
};

/// Throws: InputError if the folder cannot be written to.
void write_dump(const std::string& folder, const ExecutionRequest& request, const DumpedStep& step);

}  // namespace stowage::executor
