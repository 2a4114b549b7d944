#include "planner/layers/optimizer_step.hpp"

#include <string>

#include "planner/layers/head.hpp"
#include "planner/layers/writer.hpp"

namespace stowage::layers {
namespace {

CommGroup replicas_of(ParameterKind kind) {
    return kind == ParameterKind::dense ? CommGroup::dense_replicas : CommGroup::expert_replicas;
}

std::string kind_name(ParameterKind kind) { return kind == ParameterKind::dense ? "dense" : "expert"; }

void reduce_gradients(Writer& writer, const std::vector<ParameterBuffer>& buffers, bool distributed) {
    const CollectiveKind kind = distributed ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
    for (const ParameterBuffer& buffer : buffers) {
        if (buffer.replicas == 1) continue;
        writer.memory_kernel("gradients.scale_" + kind_name(buffer.kind), 8 * buffer.padded);
        writer.collective("gradients.reduce_" + kind_name(buffer.kind), kind, replicas_of(buffer.kind),
                          4 * buffer.padded);
    }
}

bool ends_with(const std::string& name, const std::string& ending) {
    return name.size() >= ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
}

bool is_head_norm(const std::string& name) {
    return name.find("q_norm.") != std::string::npos || name.find("k_norm.") != std::string::npos;
}

/// Replicated parameters whose gradient each tensor-parallel rank has only a part of: with sequence parallelism all
/// that act on its own tokens; norms over heads always, since each rank has its own heads.
bool has_partial_gradient(const std::string& name, bool sequence_parallel) {
    if (is_head_norm(name)) return true;
    if (!sequence_parallel) return false;
    return name.find("norm.") != std::string::npos || ends_with(name, "attn_proj.bias") ||
           ends_with(name, "mlp_fc2.bias") || ends_with(name, "router.weight");
}

/// Megatron flattens these gradients, reduces the copy and copies back.
void reduce_partial_gradients(Writer& writer, const std::vector<Parameter>& parameters) {
    std::int64_t elements = 0;
    for (const Parameter& parameter : parameters)
        if (has_partial_gradient(parameter.name, writer.dim.sequence_parallel)) elements += parameter.elements();
    if (writer.dim.tensor == 1 || elements == 0) return;
    const Slot flat = writer.make("gradients.flat_partial", {elements}, DataType::fp32);
    writer.memory_kernel("gradients.flatten_partial", 8 * elements);
    writer.collective("gradients.reduce_partial", CollectiveKind::all_reduce, CommGroup::tensor, 4 * elements);
    writer.memory_kernel("gradients.restore_partial", 8 * elements);
    writer.script.drop(flat);
}

void reduce_embedding_gradient(Writer& writer, const types::Scenario& scenario, std::int64_t rank) {
    const std::int64_t last = scenario.parallel.pipeline_model_parallel_size - 1;
    if (output_weight(scenario) != OutputWeight::copy || (rank != 0 && rank != last)) return;
    writer.collective("gradients.reduce_embedding", CollectiveKind::all_reduce, CommGroup::embedding,
                      4 * writer.dim.vocabulary * writer.dim.hidden);
}

/// The sum of squares, over ranks, to the host; then every gradient is scaled. One number crosses the ranks: with the
/// distributed optimizer those that share a shard's parameters, else those that split a layer.
void clip_gradients(Writer& writer, const types::Scenario& scenario, std::int64_t owned) {
    const types::ParallelLayout& layout = scenario.parallel;
    const bool distributed = scenario.optimizer.use_distributed_optimizer;
    writer.memory_kernel("optimizer.gradient_norm", 4 * owned);
    if (distributed && layout.dense_replicas() > 1)
        writer.collective("optimizer.reduce_norm", CollectiveKind::all_reduce, CommGroup::dense_replicas, 4);
    if (!distributed && layout.tensor_model_parallel_size > 1)
        writer.collective("optimizer.reduce_norm", CollectiveKind::all_reduce, CommGroup::tensor, 4);
    writer.script.host_sync();
    writer.memory_kernel("optimizer.clip", 8 * owned);
}

void gather_parameters(Writer& writer, const std::vector<ParameterBuffer>& buffers) {
    for (const ParameterBuffer& buffer : buffers) {
        if (buffer.replicas == 1) continue;
        writer.collective("optimizer.gather_" + kind_name(buffer.kind), CollectiveKind::all_gather,
                          replicas_of(buffer.kind), 2 * buffer.padded);
    }
}

}  // namespace

LayerScript optimizer_step(const types::Scenario& scenario, const Dimensions& dimensions, std::int64_t pipeline_rank,
                           const std::vector<Parameter>& parameters) {
    ScriptBuilder script(ScriptKind::optimizer, "optimizer");
    Writer writer(script, dimensions, scenario);
    const bool distributed = scenario.optimizer.use_distributed_optimizer;
    const bool shared = output_weight(scenario) == OutputWeight::copy;
    const auto buffers = parameter_buffers(parameters, scenario.parallel, distributed, shared);
    std::int64_t owned = 0;
    std::int64_t held = 0;
    for (const ParameterBuffer& buffer : buffers) {
        owned += buffer.shard;
        held += buffer.padded;
    }
    script.begin_forward(Part::gradients);
    reduce_gradients(writer, buffers, distributed);
    reduce_partial_gradients(writer, parameters);
    reduce_embedding_gradient(writer, scenario, pipeline_rank);
    script.part(Part::optimizer);
    clip_gradients(writer, scenario, owned);
    writer.memory_kernel("optimizer.adam", 28 * owned);
    writer.memory_kernel("optimizer.copy_parameters", 6 * owned);
    if (distributed) gather_parameters(writer, buffers);
    script.part(Part::gradients);
    writer.memory_kernel("gradients.clear", 4 * held);
    return script.build();
}

}  // namespace stowage::layers
