#pragma once

#include <map>
#include <string>
#include <vector>

#include "scenarios/types/offload_choice.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::reports {

/// What to give Megatron-LM for a choice: arguments of its command line, each with its values, and environment.
/// Values that are Megatron's defaults are left out. Nothing offloaded and no graphs: both empty.
/// Source: Megatron-LM, core/transformer/transformer_config.py (each field is a flag) and training/arguments.py, which
/// wants NVTE_CPU_OFFLOAD_V1 with Transformer Engine 2.10 and later.
struct MegatronFlags {
    std::vector<std::string> arguments;  ///< `--offload-modules core_attn moe_act` is one
    std::map<std::string, std::string> environment;
};
MegatronFlags megatron_flags(const types::OffloadChoice& choice);

/// The same with what a scenario says of CUDA graphs, and with the settings of PyTorch's allocator that the prediction
/// rests on. `--cuda-graph-scope` is the name of the modules' argument at pr-3219 (and an alias of it ever since).
MegatronFlags megatron_flags(const types::Scenario& scenario, const types::OffloadChoice& choice);

/// A number as short as reads back equal: 0.75, 1.
std::string plain_number(double value);

}  // namespace stowage::reports
