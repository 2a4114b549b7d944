#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "scenarios/reader/fields.hpp"
#include "scenarios/reader/layer_patterns.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::reader {

inline constexpr FileKind kScenarioFile{"scenario"};
inline constexpr FileKind kModelFile{"model"};
inline constexpr FileKind kHardwareFile{"hardware"};

/// A model as its files say it; zero or absent stands for "not given" until complete() fills in Megatron's defaults.
struct ModelDraft {
    types::Model model;
    LayerFrequency moe_layer_freq;         ///< 1: experts
    LayerFrequency window_attn_skip_freq;  ///< n: every n-th layer sees all; list: 1 is a windowed layer
    LayerFrequency linear_attention_freq;  ///< n: every n-th layer is attention; list: 1 is linear attention
    bool linear_attention = false;         ///< experimental_attention_variant
    std::optional<HybridPattern> hybrid;
    std::optional<std::int64_t> q_lora_rank;
    std::optional<types::RopeType> rope_type;
};

/// A scenario as its files say it, before defaults that depend on other values.
struct ScenarioDraft {
    types::Scenario scenario;
    ModelDraft model;
    std::optional<std::int64_t> expert_tensor_parallel_size;
    std::optional<std::int64_t> data_parallel_size;
    std::optional<std::int64_t> virtual_stages;
    std::optional<std::int64_t> layers_per_virtual_stage;
};

/// The keys of each format, each asked for exactly once. Reader, schema and key catalogue all run these.
void describe_scenario(Fields& fields, ScenarioDraft& draft);
void describe_model(Fields& fields, ModelDraft& draft);
void describe_hardware(Fields& fields, types::Node& node);

/// Parts of them.
void describe_parallel(Fields& fields, ScenarioDraft& draft);
void describe_optimizer(Fields& fields, types::Optimizer& optimizer);
void describe_attention(Fields& fields, ModelDraft& draft);
void describe_experts(Fields& fields, ModelDraft& draft);
void describe_hybrid(Fields& fields, ModelDraft& draft);

/// Fills in what Megatron derives: key/value heads, head sizes, ffn size, expert sizes, what each layer is.
/// Leaves a value at zero if what it derives from is missing.
types::Model complete(const ModelDraft& draft);

/// Fills in the layout's defaults, once the scenario has its model: expert tensor parallelism as tensor parallelism,
/// data parallelism from the GPUs that are left (0 if they do not divide), virtual stages from the layers of one
/// (0 if they do not divide) or from a layout string, a layout string from a hybrid pattern with stages.
void complete_layout(ScenarioDraft& draft);

}  // namespace stowage::reader
