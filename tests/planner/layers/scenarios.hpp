#pragma once

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::layers::testing {

/// Published configurations, on one Hopper GPU unless changed by the caller.
types::Scenario llama3_70b();
types::Scenario qwen3_30b_a3b();
types::Scenario qwen3_235b_a22b();
/// DeepSeek-V3's attention and dense feed-forward part in every layer, without experts and multi-token prediction.
types::Scenario deepseek_v3_dense();
/// GPT of Megatron's tests: 12 layers, h 512, 8 heads, GELU, LayerNorm, biases, learned positions, tied embeddings,
/// dropout 0.1, sequence 1024, micro batch 4, vocabulary 50257.
types::Scenario small_gpt();
/// Megatron's 7B model of its memory tests: 32 layers, h 4096, 8 query groups, untied, sequence 8192, micro batch 2;
/// the rest as small_gpt.
types::Scenario seven_billion();
/// A MoE model of Megatron's unit tests: h 1024, 8 heads of 128, GELU experts of width 4096, top 2, 2048 tokens.
types::Scenario small_moe();

/// The script of this kind on pipeline rank `rank`.
LayerScript script_of(const types::Scenario& scenario, ScriptKind kind, std::int64_t rank = 0);

}  // namespace stowage::layers::testing
