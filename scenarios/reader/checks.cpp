#include "scenarios/reader/checks.hpp"

#include <algorithm>
#include <utility>

#include "scenarios/reader/check_tools.hpp"

namespace stowage::reader {
namespace {

constexpr double kMostElements = 1e15;

void check_batch(Gathered& gathered, const types::Scenario& scenario) {
    const types::Batch& batch = scenario.batch;
    const types::ParallelLayout& parallel = scenario.parallel;
    if (all_read(gathered, {"batch.global_batch_size", "batch.micro_batch_size", kData}) &&
        parallel.data_parallel_size > 0)
        require_multiple(gathered, "batch.global_batch_size", "global_batch_size", batch.global_batch_size,
                         "micro_batch_size x data_parallel_size",
                         product(batch.micro_batch_size, parallel.data_parallel_size));
    if (!all_read(gathered, {"batch.seq_length", kContext, kTensor, kSequence})) return;
    const bool split = parallel.context_parallel_size > 1;
    const std::int64_t pieces = product(split ? 2 * parallel.context_parallel_size : 1, parallel.sequence_shards());
    if (pieces == 1 || batch.seq_length % pieces == 0) return;
    const std::string name =
        split ? (parallel.sequence_shards() > 1 ? "2 x context_parallel_size x tensor_model_parallel_size"
                                                : "2 x context_parallel_size")
              : "tensor_model_parallel_size (sequence_parallel)";
    require_multiple(gathered, "batch.seq_length", "seq_length", batch.seq_length, name, pieces);
}

std::string layout_words(const types::ParallelLayout& parallel) {
    return "tensor " + number(parallel.tensor_model_parallel_size) + " x pipeline " +
           number(parallel.pipeline_model_parallel_size) + " x context " + number(parallel.context_parallel_size);
}

/// Whether the layout covers the hardware; the remaining checks of it make no sense otherwise.
bool check_world(Gathered& gathered, const types::Scenario& scenario) {
    const types::ParallelLayout& parallel = scenario.parallel;
    const types::Hardware& hardware = scenario.hardware;
    if (!all_read(gathered, {kTensor, kPipeline, kContext, kData, "hardware.nodes", "hardware.node.gpus_per_node"}))
        return false;
    const std::string gpus = number(hardware.gpus()) + " GPUs (" + number(hardware.nodes) + " nodes of " +
                             number(hardware.node.gpus_per_node) + ")";
    if (parallel.data_parallel_size == 0) {
        report(gathered, "hardware.nodes", gpus + " are not a multiple of " + layout_words(parallel));
        return false;
    }
    const std::int64_t world = product({parallel.tensor_model_parallel_size, parallel.pipeline_model_parallel_size,
                                        parallel.context_parallel_size, parallel.data_parallel_size});
    if (world == hardware.gpus()) return true;
    report(gathered, kData,
           layout_words(parallel) + " x data " + number(parallel.data_parallel_size) + " is " + number(world) +
               " ranks, but the hardware has " + gpus,
           "leave data_parallel_size out to use all GPUs");
    return false;
}

void check_expert_world(Gathered& gathered, const types::Scenario& scenario) {
    const types::ParallelLayout& parallel = scenario.parallel;
    if (!scenario.model.has_experts() || !all_read(gathered, {kExpert, kExpertTensor, "model.num_experts"})) return;
    const std::int64_t ranks = product({parallel.expert_tensor_parallel_size, parallel.expert_model_parallel_size,
                                        parallel.pipeline_model_parallel_size});
    if (scenario.hardware.gpus() % ranks == 0) return;
    report(gathered, kExpert,
           number(scenario.hardware.gpus()) + " GPUs are not a multiple of expert tensor " +
               number(parallel.expert_tensor_parallel_size) + " x expert " +
               number(parallel.expert_model_parallel_size) + " x pipeline " +
               number(parallel.pipeline_model_parallel_size));
}

/// Sizes of single tensors stay far inside 64-bit arithmetic.
void check_tokens(Gathered& gathered, const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    if (!all_read(gathered, {"batch.seq_length", "batch.micro_batch_size", "model"})) return;
    const double tokens =
        static_cast<double>(scenario.batch.seq_length) * static_cast<double>(scenario.batch.micro_batch_size);
    const std::int64_t head =
        std::max({model.kv_channels, model.qk_head_dim + model.qk_pos_emb_head_dim, model.v_head_dim});
    const std::int64_t widest =
        std::max({model.hidden_size, model.ffn_hidden_size, model.vocab_size, model.q_lora_rank, model.kv_lora_rank,
                  product(model.num_attention_heads, head), product(model.mamba_num_heads, model.mamba_head_dim),
                  product(model.linear_num_value_heads, model.linear_value_head_dim),
                  product(model.linear_num_key_heads, model.linear_key_head_dim),
                  product(std::max<std::int64_t>(model.moe_router_topk, 1),
                          std::max(model.moe_ffn_hidden_size, model.moe_latent_size))});
    if (tokens * static_cast<double>(widest) <= kMostElements) return;
    report(gathered, "batch.seq_length", "a microbatch has tensors of more than 10^15 elements, expected fewer");
}

}  // namespace

void check_scenario(Gathered& gathered, const ScenarioDraft& draft) {
    const types::Scenario& scenario = draft.scenario;
    check_split(gathered, scenario);
    check_pipeline(gathered, draft);
    check_batch(gathered, scenario);
    check_tokens(gathered, scenario);
    if (check_world(gathered, scenario)) check_expert_world(gathered, scenario);
    check_communication(gathered, scenario);
    check_training(gathered, scenario);
}

}  // namespace stowage::reader
