#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "scenarios/reader/fields.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::reader {

inline constexpr FileKind kScenarioFile{"scenario"};
inline constexpr FileKind kModelFile{"model"};
inline constexpr FileKind kHardwareFile{"hardware"};

/// A model as its files say it; zero or absent stands for "not given" until complete() fills in Megatron's defaults.
struct ModelDraft {
    types::Model model;
    std::optional<std::int64_t> moe_every;  ///< moe_layer_freq as a number: every so many layers, from layer 0
};

/// A scenario as its files say it, before defaults that depend on other values.
struct ScenarioDraft {
    types::Scenario scenario;
    ModelDraft model;
    std::optional<std::int64_t> expert_tensor_parallel_size;
    std::optional<std::int64_t> data_parallel_size;
};

/// The keys of each format, each asked for exactly once. Reader, schema and key catalogue all run these.
void describe_scenario(Fields& fields, ScenarioDraft& draft);
void describe_model(Fields& fields, ModelDraft& draft);
void describe_hardware(Fields& fields, types::Node& node);

/// Fills in what Megatron derives: key/value heads, head size, ffn size, expert sizes, the pattern of MoE layers.
/// Leaves a value at zero if what it derives from is missing.
types::Model complete(const ModelDraft& draft);

/// Fills in the layout's defaults: expert tensor parallelism as tensor parallelism, data parallelism from the GPUs
/// that are left (0 if they do not divide).
void complete_layout(ScenarioDraft& draft);

}  // namespace stowage::reader
