#include "tests/support/small_jobs.hpp"

#include "planner/program/durations.hpp"

namespace stowage::tests {
namespace {

using types::Bytes;
using types::Nanoseconds;

types::Scenario small_scenario(const SmallJob& job) {
    types::Scenario scenario;
    scenario.name = "small";
    scenario.env["NVTE_CPU_OFFLOAD_V1"] = "1";
    types::Model& model = scenario.model;
    model.num_layers = job.layers_per_stage * job.stages;
    model.hidden_size = job.hidden;
    model.ffn_hidden_size = 4 * job.hidden;
    model.num_attention_heads = job.hidden / 128;
    model.num_query_groups = model.num_attention_heads;
    model.kv_channels = 128;
    model.vocab_size = 1024;
    if (job.experts) {
        model.num_experts = 4;
        model.moe_router_topk = 2;
        model.moe_ffn_hidden_size = 2 * job.hidden;
    }
    scenario.parallel.pipeline_model_parallel_size = job.stages;
    scenario.batch.seq_length = job.sequence;
    scenario.batch.global_batch_size = job.microbatches;
    scenario.offload.offload_modules.reset();
    scenario.offload.activation_offload_fraction.reset();
    if (job.fixed_fraction > 0) scenario.offload.activation_offload_fraction = job.fixed_fraction;
    scenario.offload.min_offloaded_tensor_size = 1 << 16;
    scenario.offload.delta_offload_bytes_across_pp_ranks = job.delta_bytes;
    scenario.hardware.node = small_node(job);
    return scenario;
}

types::DataType half_of(types::DataType type) {
    switch (type) {
        case types::DataType::bf16:
        case types::DataType::fp16: return types::DataType::fp8;
        case types::DataType::fp32: return types::DataType::bf16;
        case types::DataType::int64: return types::DataType::int32;
        default: return type;
    }
}

void halve(layers::LayerScript& script, const program::Durations& durations) {
    for (const auto* steps : {&script.forward, &script.backward})
        for (const layers::Step& step : *steps)
            if (step.kind == layers::StepKind::kernel)
                script.kernels[step.detail].measured = durations.kernel(script.kernels[step.detail], step.phase);
    for (layers::Tensor& tensor : script.tensors) tensor.type = half_of(tensor.type);
    for (layers::SavedTensor& saved : script.saved) saved.type = half_of(saved.type);
}

}  // namespace

types::Node small_node(const SmallJob& job) {
    types::Node node;
    node.name = "small";
    node.gpus_per_node = 8;
    node.device.compute_capability = 90;
    node.device.memory = Bytes{1LL << 50};
    node.device.gemm_bf16 = {700e12};
    node.device.attention_forward_bf16 = {450e12};
    node.device.attention_backward_bf16 = {450e12};
    node.device.memory_bandwidth = {4e12};
    auto time = [&](std::int64_t bytes) {
        return Nanoseconds{1000 + static_cast<std::int64_t>(static_cast<double>(bytes) / job.copy_gb_per_s)};
    };
    // The first is a norm that the host reads: reckoned from the two behind it, which are whole nanoseconds, it could
    // take one more on a faster link.
    std::vector<types::CopyPoint> points{{Bytes{4}, time(4)}};
    for (int bits = 16; bits <= 30; bits += 2)
        points.push_back({Bytes{std::int64_t{1} << bits}, time(std::int64_t{1} << bits)});
    node.copy.device_to_host = types::CopyCurve(points);
    node.copy.host_to_device = types::CopyCurve(points);
    node.copy.duplex_device_to_host = 0.9;
    node.copy.duplex_host_to_device = 0.9;
    for (types::Slowdown& slowdown : node.copy.slowdown) slowdown = {0.04, 0.04, 0.08};
    node.host.kernel_launch = job.kernel_launch;
    node.nvlink = {{450e9}, Nanoseconds{3000}};
    node.network = {{50e9}, Nanoseconds{14000}};
    node.host_memory = Bytes{1LL << 50};
    return node;
}

search::Job transformer_job(const SmallJob& job) { return search::prepare(small_scenario(job)); }

search::Job synthetic_job(const SmallJob& job) {
    search::Job made;
    made.scenario = small_scenario(job);
    for (std::int64_t rank = 0; rank < job.stages; ++rank)
        made.stages.push_back(synthetic_stage(rank, job.stages, job.layers_per_stage, job.layer));
    return made;
}

SmallJob random_small_job(std::mt19937_64& random) {
    auto below = [&](std::uint64_t bound) { return static_cast<std::int64_t>(random() % bound); };
    SmallJob job;
    job.layers_per_stage = 1 + below(4);
    job.stages = 1 + below(4);
    job.microbatches = 1 + below(6);
    job.copy_gb_per_s = 4 + static_cast<double>(below(60));
    job.experts = below(3) == 0;
    job.hidden = 512 * (1 + below(3));
    job.sequence = 1024 * (1 + below(4));
    job.kernel_launch = Nanoseconds{1000 * below(3)};
    job.layer.core_attn_elements = (1 + below(40)) << 18;
    job.layer.attn_proj_elements = (1 + below(40)) << 18;
    job.layer.boundary_elements = (1 + below(8)) << 18;
    job.layer.kernel = Nanoseconds{20'000 * (1 + below(20))};
    job.layer.gathered = below(4) == 0;
    job.layer.shared = !job.layer.gathered && below(4) == 0;
    return job;
}

search::Job with_half_the_bytes(const search::Job& job) {
    const program::Durations durations(job.scenario.hardware, job.scenario.parallel);
    search::Job halved = job;
    for (layers::StageLayers& stage : halved.stages) {
        for (layers::LayerScript& script : stage.scripts) halve(script, durations);
        halve(stage.optimizer, durations);
        stage.boundary = Bytes{stage.boundary.count / 2};
    }
    return halved;
}

}  // namespace stowage::tests
