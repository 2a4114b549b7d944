#include "tests/conformance/recorded_rows.hpp"

#include <algorithm>
#include <utility>

#include "planner/program/lowering.hpp"
#include "planner/simulator/simulator.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::tests {
namespace {

using types::Scenario;

/// Lays `scenario` out over `gpus` GPUs of H100 machines; the sharded optimizer unless said.
Scenario laid_out(Scenario scenario, std::int64_t tensor, std::int64_t pipeline, bool distributed_optimizer,
                  std::int64_t gpus = 8) {
    static const types::Node h100 =
        reader::read_hardware(std::string{STOWAGE_SOURCE_DIR} + "/scenarios/hardware/h100-8gpu.yaml");
    scenario.hardware.node = h100;
    scenario.hardware.node.gpus_per_node = static_cast<int>(gpus);
    scenario.batch.global_batch_size = 32;
    scenario.env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8";
    scenario.parallel.tensor_model_parallel_size = tensor;
    scenario.parallel.expert_tensor_parallel_size = tensor;
    scenario.parallel.pipeline_model_parallel_size = pipeline;
    scenario.parallel.data_parallel_size = gpus / (tensor * pipeline);
    scenario.optimizer.use_distributed_optimizer = distributed_optimizer;
    return scenario;
}

Scenario gpt(std::int64_t tensor, std::int64_t pipeline, bool distributed_optimizer) {
    return laid_out(layers::testing::small_gpt(), tensor, pipeline, distributed_optimizer);
}

/// The same model with experts in every layer, without biases in linears.
Scenario experts(std::int64_t tensor, std::int64_t pipeline, std::int64_t gpus = 8) {
    Scenario scenario = laid_out(layers::testing::small_gpt(), tensor, pipeline, true, gpus);
    scenario.model.add_bias_linear = false;
    scenario.model.num_experts = 8;
    scenario.model.moe_router_topk = 1;
    scenario.model.moe_ffn_hidden_size = 2048;
    scenario.parallel.sequence_parallel = tensor > 1;  // with one tensor rank Megatron switches it off
    scenario.parallel.expert_model_parallel_size = 2;
    return scenario;
}

Scenario seven_billion() {
    Scenario scenario = laid_out(layers::testing::seven_billion(), 4, 1, true);
    scenario.batch.global_batch_size = 8;
    return scenario;
}

Scenario rotary() {
    Scenario scenario = gpt(1, 2, false);
    scenario.model.position_embedding_type = types::PositionEmbedding::rope;
    return scenario;
}

/// Gated: the width is floor(4 * 512 * 2/3 / 64) * 64 = 1344.
Scenario gated() {
    Scenario scenario = gpt(1, 4, false);
    scenario.model.activation = types::Activation::swiglu;
    scenario.model.ffn_hidden_size = 1344;
    return scenario;
}

Scenario head_norms() {
    Scenario scenario = gpt(4, 1, false);
    scenario.model.qk_layernorm = true;
    return scenario;
}

/// Four layers of four gated experts (1344 wide), one GEMM for all of them.
Scenario grouped_experts() {
    Scenario scenario = experts(1, 1);
    scenario.optimizer.use_distributed_optimizer = false;
    scenario.model.num_layers = 4;
    scenario.model.num_experts = 4;
    scenario.model.activation = types::Activation::swiglu;
    scenario.model.ffn_hidden_size = 1344;
    scenario.model.moe_ffn_hidden_size = 1344;
    scenario.parallel.expert_model_parallel_size = 1;
    return scenario;
}

/// On another GPU: capability 80 is an A100, 100 a GB200.
Scenario on(int compute_capability, Scenario scenario) {
    scenario.hardware.node.device.compute_capability = compute_capability;
    return scenario;
}

/// CUBLAS_WORKSPACE_CONFIG as given; empty: unset.
Scenario with_workspace(Scenario scenario, const std::string& config) {
    scenario.env.erase("CUBLAS_WORKSPACE_CONFIG");
    if (!config.empty()) scenario.env["CUBLAS_WORKSPACE_CONFIG"] = config;
    return scenario;
}

bool absent(const layers::StateBuffer& state, const RecordedRow& row) {
    return (!row.fused_accumulation && state.name.starts_with("dummy gradient")) ||
           (!row.grouped_gemm && state.name.starts_with("Transformer Engine grouped GEMM"));
}

}  // namespace

std::vector<RecordedRow> recorded_rows() {
    const Scenario pipelined_experts = with_workspace(experts(1, 2), "");
    const std::string older_pytorch = ":4096:2:16:8";  // its choice for a GPU newer than it
    const std::string gathered = "Megatron gathers tokens there: a buffer of 8 MiB and 72 KiB a layer stay";
    return {
        {.name = "gpt/gpt3_7b_tp4_pp1_memory_speed, H100",
         .scenario = seven_billion(),
         .recorded = {20'663'519'232, 57'143'791'616},
         .bar = {0.0005, 0.0005}},
        {.name = "gpt/gpt3_mcore_te_tp1_pp1_resume_torch_dist_dist_optimizer, H100",
         .scenario = gpt(1, 1, true),
         .recorded = {581'489'664, 2'691'792'384},
         .bar = {0, 0.001}},
        {.name = "gpt/gpt3_mcore_te_tp1_pp2_resume_torch_dist_rope_embeddings, H100",
         .scenario = rotary(),
         .recorded = {919'557'120, 2'598'238'208},
         .bar = {0.005, 0.002}},
        {.name = "gpt/gpt3_mcore_te_tp1_pp4_resume_torch_dist_swiglu, H100",
         .scenario = gated(),
         .recorded = {745'732'608, 2'211'485'184},
         .bar = {0.001, 0.001}},
        {.name = "gpt/gpt3_mcore_te_tp2_pp2_resume_torch_dist_ddp_average_in_collective, H100",
         .scenario = gpt(2, 2, false),
         .recorded = {517'243'392, 1'428'171'264},
         .bar = {0.006, 0.003}},
        {.name = "gpt/gpt3_mcore_te_tp2_pp2_resume_torch_dist_defer_embedding_wgrad_compute, H100",
         .scenario = gpt(2, 2, false),
         .fused_accumulation = true,
         .recorded = {545'423'872, 0},
         .bar = {0.005, 0}},
        {.name = "gpt/gpt3_mcore_te_tp4_pp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce, H100",
         .scenario = gpt(4, 1, true),
         .recorded = {299'204'096, 1'042'465'280},
         .bar = {0.002, 0.001}},
        {.name = "gpt/gpt3_mcore_te_tp4_pp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_param_gather, H100",
         .scenario = gpt(4, 1, true),
         .recorded = {299'728'384, 1'041'940'992},
         .bar = {0.002, 0.001}},
        {.name = "gpt/gpt3_mcore_te_tp4_pp1_resume_torch_dist_qk_layernorm_test_mode, H100",
         .scenario = head_norms(),
         .recorded = {398'273'024, 1'177'314'304},
         .bar = {0.002, 0.002}},
        {.name = "gpt/gpt3_mcore_te_tp4_pp2_resume_torch_dist_reshard_8x1xNone, H100",
         .scenario = with_workspace(gpt(4, 2, true), ""),
         .recorded = {311'828'992, 844'288'512},
         .bar = {0, 0.001}},
        {.name = "gpt/gpt3_mcore_te_tp4_pp2_resume_torch_dist_reshard_8x1xNone, GB200",
         .scenario = on(100, with_workspace(gpt(4, 2, true), older_pytorch)),
         .recorded = {261'759'488, 793'956'864},
         .bar = {0, 0.001}},
        {.name = "gpt/gpt3_mcore_te_tp4_pp2_resume_torch_dist_reshard_8x1xNone, A100",
         .scenario = on(80, with_workspace(gpt(4, 2, true), "")),
         .recorded = {232'398'336, 775'343'616},
         .bar = {0, 0.015},
         .cause =
             "Transformer Engine takes flash-attention before Hopper; it saves a second output, 1 MiB a layer here"},
        {.name = "moe/gpt3_mcore_te_tp1_pp1_te_4experts_groupedGEMM_op_fuser, H100",
         .scenario = grouped_experts(),
         .grouped_gemm = true,
         .recorded = {1'384'147'968, 2'956'330'496},
         .bar = {0.001, 0.006}},
        {.name = "moe/gpt3_mcore_te_tp1_pp2_resume_torch_dist_reshard_2x1x4_te_8experts2parallel_dist_optimizer, H100",
         .scenario = pipelined_experts,
         .recorded = {1'016'926'720, 2'834'290'176},
         .bar = {0.015, 0.01},
         .cause = gathered},
        {.name = "moe/gpt3_mcore_te_tp1_pp2_resume_torch_dist_reshard_2x1x4_te_8experts2parallel_dist_optimizer, GB200",
         .scenario = on(100, pipelined_experts),
         .recorded = {1'014'760'960, 2'829'482'496},
         .bar = {0.015, 0.01},
         .cause = gathered},
        {.name = "moe/gpt3_mcore_te_tp1_pp2_resume_torch_dist_reshard_2x1x4_te_8experts2parallel_dist_optimizer_1node, "
                 "GB200",
         .scenario = on(100, with_workspace(experts(1, 2, 4), older_pytorch)),
         .recorded = {1'363'489'792, 3'175'993'856},
         .bar = {0.01, 0.01}},
        {.name = "moe/gpt3_mcore_te_tp2_pp1_resume_torch_dist_te_8experts2parallel_dist_optimizer, H100",
         .scenario = experts(2, 1),
         .recorded = {892'871'680, 2'159'231'488},
         .bar = {0.006, 0.03},
         .cause = "deterministic mode: unpermuting saves the experts' output as well, 4 MiB a layer"},
    };
}

Memory<types::Bytes> predict(const RecordedRow& row) {
    search::Job job = search::prepare(row.scenario);
    for (layers::StageLayers& stage : job.stages)
        std::erase_if(stage.states, [&](const auto& state) { return absent(state, row); });
    const program::Durations durations(job.scenario.hardware, job.scenario.parallel);
    std::vector<program::Lowered> lowered;
    for (const layers::StageLayers& stage : job.stages)
        lowered.push_back(program::lower(stage, job.scenario.microbatches(), {}, job.scenario.rules, durations));
    std::vector<const program::StepProgram*> programs;
    for (const program::Lowered& rank : lowered) programs.push_back(&rank.program);
    const simulator::Prediction prediction = simulator::simulate(programs, job.scenario.hardware.node);
    const simulator::RankPrediction& last = prediction.ranks.back();
    return {last.steady.allocated_after, std::max(last.record.peak_allocated, last.steady.peak_allocated)};
}

}  // namespace stowage::tests
