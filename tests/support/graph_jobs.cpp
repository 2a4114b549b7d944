#include "tests/support/graph_jobs.hpp"

#include <sstream>

#include "planner/layers/support.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::tests {
namespace {

using types::Bytes;
using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::Nanoseconds;
using types::RecomputeModule;
using types::Scenario;
using types::TokenDispatcher;

types::Node node() {
    types::Node node;
    node.name = "made up";
    node.gpus_per_node = 8;
    node.nvlink = {{100e9}, Nanoseconds{2000}};
    node.network = node.nvlink;
    node.device.memory = Bytes{1LL << 40};
    node.device.memory_bandwidth = {1e12};
    node.device.gemm_bf16 = {5e14};
    node.device.gemm_fp8 = {1e15};
    node.device.attention_forward_bf16 = {4e14};
    node.device.attention_backward_bf16 = {3e14};
    node.device.compute_capability = 90;
    node.host_memory = Bytes{1LL << 40};
    constexpr std::int64_t kMiB = 1 << 20;
    const types::CopyCurve curve({{Bytes{kMiB}, Nanoseconds{20'000}}, {Bytes{2 * kMiB}, Nanoseconds{40'000}}});
    node.copy.device_to_host = curve;
    node.copy.host_to_device = curve;
    return node;
}

}  // namespace

/// What may be listed together (rules G7 to G13) and leaves the experts outside.
std::vector<CudaGraphModule> GraphJobs::scope(CudaGraphImpl impl, bool dense_layers) {
    using M = CudaGraphModule;
    if (impl == CudaGraphImpl::full_iteration) return {};
    std::vector<M> listed;
    if (one_in(2)) listed.push_back(M::attn);
    if (dense_layers && one_in(3)) listed.push_back(M::mlp);
    const int router = of({0, 0, 1, 2});
    if (router > 0) listed.push_back(M::moe_router);
    if (router > 1) listed.push_back(M::moe_preprocess);
    if (listed.empty()) listed.push_back(M::attn);
    return listed;
}

types::ModuleSet GraphJobs::modules(CudaGraphImpl impl) {
    types::ModuleSet chosen;
    for (const Module module : {Module::expert_fc1, Module::moe_act})
        if (one_in(2)) chosen.insert(module);
    if (impl == CudaGraphImpl::local) return chosen;
    for (const Module module : {Module::attn_norm, Module::qkv_linear, Module::mlp_norm, Module::core_attn})
        if (one_in(2)) chosen.insert(module);
    if (chosen.contains(Module::core_attn) && one_in(2)) chosen.insert(Module::attn_proj);
    return chosen;
}

void GraphJobs::model(Scenario& scenario) {
    types::Model& model = scenario.model;
    model.hidden_size = 512;
    model.num_attention_heads = 4;
    model.num_query_groups = model.multi_latent_attention ? 4 : of<std::int64_t>({2, 4});
    model.ffn_hidden_size = 1024;
    model.vocab_size = 1024;
    model.num_experts = 8;
    model.moe_router_topk = 2;
    model.moe_ffn_hidden_size = 512;
    model.moe_shared_expert_intermediate_size = of<std::int64_t>({0, 256});
    model.moe_latent_size = of<std::int64_t>({0, 0, 256});
    model.mtp_num_layers = one_in(4) ? 1 : 0;
}

void GraphJobs::pipeline(Scenario& scenario) {
    types::ParallelLayout& parallel = scenario.parallel;
    types::Model& model = scenario.model;
    const std::int64_t ranks = of<std::int64_t>({1, 1, 2, 4});
    parallel.pipeline_model_parallel_size = ranks;
    if (ranks > 1) parallel.num_virtual_stages_per_pipeline_rank = of<std::int64_t>({1, 2});
    parallel.expert_model_parallel_size = of<std::int64_t>({1, 2, 4});
    parallel.data_parallel_size = 4;
    parallel.moe_token_dispatcher_type =
        of({TokenDispatcher::alltoall, TokenDispatcher::alltoall, TokenDispatcher::flex});
    model.num_layers = ranks * parallel.num_virtual_stages_per_pipeline_rank * of<std::int64_t>({2, 3});
    model.moe_layer_freq.clear();
    if (one_in(3))
        for (std::int64_t layer = 0; layer < model.num_layers; ++layer) model.moe_layer_freq.push_back(layer % 3 != 0);
    scenario.batch.seq_length = 1024;
    scenario.batch.micro_batch_size = 1;
    scenario.batch.global_batch_size = parallel.data_parallel_size * ranks * of<std::int64_t>({1, 2, 3});
}

/// Experts are captured only with fixed sizes.
void GraphJobs::graphs(Scenario& scenario) {
    types::CudaGraph& graph = scenario.cuda_graph;
    graph.cuda_graph_impl =
        of({CudaGraphImpl::transformer_engine, CudaGraphImpl::transformer_engine, CudaGraphImpl::transformer_engine,
            CudaGraphImpl::local, CudaGraphImpl::full_iteration});
    graph.cuda_graph_modules = scope(graph.cuda_graph_impl, !scenario.model.moe_layer_freq.empty());
    graph.cuda_graph_warmup_steps = of<std::int64_t>({1, 3});
    const bool whole_layers = graph.cuda_graph_impl != CudaGraphImpl::full_iteration && one_in(8);
    if (whole_layers && one_in(2))
        graph.cuda_graph_modules = {CudaGraphModule::attn, CudaGraphModule::moe};
    else if (whole_layers)
        graph.cuda_graph_modules = {};
    if (graph.cuda_graph_impl != CudaGraphImpl::full_iteration && !whole_layers) return;
    scenario.model.moe_expert_capacity_factor = 1.0;
    scenario.model.moe_pad_expert_input_to_capacity = true;
    scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::alltoall;
}

void GraphJobs::pairing(Scenario& scenario) {
    types::ParallelLayout& parallel = scenario.parallel;
    const bool possible =
        scenario.cuda_graph.cuda_graph_impl != CudaGraphImpl::full_iteration && !scenario.model.drop_and_pad() &&
        !scenario.cuda_graph.lists(CudaGraphModule::mlp) && parallel.expert_model_parallel_size > 1 &&
        (parallel.pipeline_model_parallel_size == 1 || parallel.num_virtual_stages_per_pipeline_rank > 1);
    parallel.overlap_moe_expert_parallel_comm = possible && one_in(3);
    parallel.delay_wgrad_compute = parallel.overlap_moe_expert_parallel_comm && one_in(2);
    const bool beside = scenario.model.moe_shared_expert_intermediate_size > 0 &&
                        !parallel.overlap_moe_expert_parallel_comm &&
                        parallel.moe_token_dispatcher_type == TokenDispatcher::alltoall;
    parallel.moe_shared_expert_overlap = beside && one_in(3);
}

void GraphJobs::recomputation(Scenario& scenario) {
    types::Recompute& recompute = scenario.recompute;
    if (!one_in(3)) return;
    recompute.recompute_granularity = types::RecomputeGranularity::selective;
    if (one_in(2)) recompute.recompute_modules.push_back(RecomputeModule::layernorm);
    if (one_in(2)) recompute.recompute_modules.push_back(RecomputeModule::moe_act);
    if (scenario.model.multi_latent_attention && one_in(2))
        recompute.recompute_modules.push_back(RecomputeModule::mla_up_proj);
}

Scenario GraphJobs::scenario() {
    Scenario scenario = one_in(3) ? layers::testing::deepseek_v3_dense() : layers::testing::small_moe();
    model(scenario);
    pipeline(scenario);
    graphs(scenario);
    pairing(scenario);
    recomputation(scenario);
    scenario.offload.offload_modules = modules(scenario.cuda_graph.cuda_graph_impl);
    scenario.offload.min_offloaded_tensor_size = of<std::int64_t>({1, 200'000});
    scenario.hardware.node = node();
    scenario.hardware.nodes = 8;
    return scenario;
}

types::OffloadChoice GraphJobs::choice(const Scenario& scenario) {
    types::OffloadChoice choice{.modules = *scenario.offload.offload_modules};
    choice.fraction = of({1.0, 1.0, 0.8, 0.5});
    choice.min_offloaded_tensor_size = scenario.offload.min_offloaded_tensor_size;
    choice.delta_bytes_across_pp_ranks = of<std::int64_t>({0, 0, 1, 3'000'000});
    choice.delay_until_cuda_graph = one_in(2);
    if (scenario.cuda_graph.cuda_graph_impl == CudaGraphImpl::full_iteration)
        choice.max_inflight_offloads = of<std::int64_t>({0, 1, 2});
    else if (scenario.cuda_graph.cuda_graph_impl == CudaGraphImpl::local && one_in(2))
        choice.max_inflight_offloads = of<std::int64_t>({0, 1});
    return choice;
}

GraphJobs::Job GraphJobs::next() {
    for (;;) {
        Job job;
        job.scenario = scenario();
        job.choice = choice(job.scenario);
        if (layers::unsupported_features(job.scenario).empty()) return job;
    }
}

std::string text_of(const GraphJobs::Job& job) {
    std::ostringstream text;
    const Scenario& scenario = job.scenario;
    const types::ParallelLayout& parallel = scenario.parallel;
    const types::Model& model = scenario.model;
    text << types::name_of(scenario.cuda_graph.cuda_graph_impl) << " [";
    for (const CudaGraphModule module : scenario.cuda_graph.cuda_graph_modules) text << types::name_of(module) << " ";
    text << "] warm-up " << scenario.cuda_graph.cuda_graph_warmup_steps << ", pp "
         << parallel.pipeline_model_parallel_size << " vp " << parallel.num_virtual_stages_per_pipeline_rank << " M "
         << scenario.microbatches() << " L " << model.num_layers << (model.moe_layer_freq.empty() ? "" : " mixed")
         << (model.multi_latent_attention ? " MLA" : "") << (model.mtp_num_layers > 0 ? " MTP" : "")
         << (model.drop_and_pad() ? " padded" : "") << " shared " << model.moe_shared_expert_intermediate_size
         << (parallel.moe_shared_expert_overlap ? " overlapped" : "") << " latent " << model.moe_latent_size << " ep "
         << parallel.expert_model_parallel_size
         << (parallel.moe_token_dispatcher_type == TokenDispatcher::flex ? " flex" : "")
         << (parallel.overlap_moe_expert_parallel_comm ? " paired" : "")
         << (parallel.delay_wgrad_compute ? " late weights" : "") << ", recompute [";
    for (const RecomputeModule module : scenario.recompute.recompute_modules) text << types::name_of(module) << " ";
    text << "], {" << job.choice.modules.joined() << "} fraction " << job.choice.fraction << " minimum "
         << job.choice.min_offloaded_tensor_size << " delta " << job.choice.delta_bytes_across_pp_ranks
         << (job.choice.delay_until_cuda_graph ? " delayed" : "");
    if (job.choice.max_inflight_offloads) text << " cap " << *job.choice.max_inflight_offloads;
    return text.str();
}

}  // namespace stowage::tests
