#pragma once

#include <filesystem>

#include "scenarios/reader/megatron_arguments.hpp"

namespace stowage::reader {

/// Makes a scenario of the model that a Hugging Face config.json describes. Such a file knows no layout: the scenario
/// has one GPU a replica, micro batches of one sequence of at most 4096 tokens, and offloading left to the planner; it
/// is there to be edited. Keys without effect on sizes are passed over, keys nobody knows become notes.
/// Families, by model_type: llama, mixtral, qwen3, qwen3_moe, qwen3_next, deepseek_v3 and kimi_k2, glm4_moe,
/// glm_moe_dsa, minimax_m2, gpt_oss, nemotron_h. Another model_type is refused by name.
/// Throws: types::InputError with every error found, each as file:line:column, key, line, caret and hint.
/// Source: the configuration classes of huggingface/transformers and of the models' own repositories.
ImportedScenario import_hugging_face(const std::filesystem::path& config, const ImportedHardware& hardware);

}  // namespace stowage::reader
