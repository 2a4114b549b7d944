#include "planner/layers/optimizer_step.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "planner/layers/head.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/padding.hpp"
#include "planner/layers/states_formats.hpp"
#include "planner/layers/states_host.hpp"
#include "planner/layers/writer.hpp"

namespace stowage::layers {
namespace {

using types::Scenario;

/// What the parts of the step share.
struct Job {
    const Scenario& scenario;
    StateFormats formats;
    std::vector<ParameterBuffer> buffers;
    bool several_chunks = false;
    HostShare host;

    [[nodiscard]] bool distributed() const { return scenario.optimizer.use_distributed_optimizer; }
    [[nodiscard]] std::string name(const ParameterBuffer& buffer) const { return buffer.name(several_chunks); }
};

CommGroup replicas_of(ParameterKind kind) {
    return kind == ParameterKind::dense ? CommGroup::dense_replicas : CommGroup::expert_replicas;
}

/// Among the ranks of one optimizer instance, or across the instances.
void instance_collective(Writer& writer, const std::string& name, CollectiveKind kind, const ParameterBuffer& buffer,
                         std::int64_t bytes, bool across, bool waits) {
    if ((across ? buffer.instances() : buffer.shards) == 1) return;
    writer.script.collective({name, kind, replicas_of(buffer.kind), Bytes{bytes}, waits, buffer.instances(), across});
}

/// Of a whole buffer or a bucket of it.
void reduce_bucket(Writer& writer, const Job& job, const ParameterBuffer& buffer, std::int64_t elements, bool waits) {
    if (buffer.replicas == 1) return;
    const std::int64_t size = job.formats.gradient;
    const std::string name = job.name(buffer);
    writer.memory_kernel("gradients.scale_" + name, 2 * size * elements);
    if (!job.distributed()) {
        writer.script.collective({"gradients.reduce_" + name, CollectiveKind::all_reduce, replicas_of(buffer.kind),
                                  Bytes{size * elements}, waits});
        return;
    }
    instance_collective(writer, "gradients.reduce_" + name, CollectiveKind::reduce_scatter, buffer, size * elements,
                        false, waits);
    instance_collective(writer, "gradients.reduce_instances_" + name, CollectiveKind::all_reduce, buffer,
                        size * elements / buffer.shards, true, waits);
}

void reduce_gradients(Writer& writer, const Job& job) {
    for (const ParameterBuffer& buffer : job.buffers) reduce_bucket(writer, job, buffer, buffer.padded, true);
}

bool ends_with(const std::string& name, const std::string& ending) {
    return name.size() >= ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
}

bool is_head_norm(const std::string& name) {
    return name.find("q_norm.") != std::string::npos || name.find("k_norm.") != std::string::npos;
}

/// Replicated parameters whose gradient each tensor-parallel rank has only a part of: with sequence parallelism all
/// that act on its own tokens, the down projections of latent attention and those of latent experts among them; norms
/// over heads always, since each rank has its own heads.
bool has_partial_gradient(const std::string& name, bool sequence_parallel) {
    if (is_head_norm(name)) return true;
    if (!sequence_parallel) return false;
    return name.find("norm.") != std::string::npos || ends_with(name, "attn_proj.bias") ||
           ends_with(name, "mlp_fc2.bias") || ends_with(name, "router.weight") || ends_with(name, "_down.weight") ||
           name.find("latent_fc") != std::string::npos;
}

/// Megatron flattens these gradients, reduces the copy and copies back.
void reduce_partial_gradients(Writer& writer, const Job& job, const std::vector<Parameter>& parameters) {
    std::int64_t elements = 0;
    for (const Parameter& parameter : parameters)
        if (has_partial_gradient(parameter.name, writer.dim.sequence_parallel)) elements += parameter.elements();
    if (writer.dim.tensor == 1 || elements == 0) return;
    const std::int64_t size = job.formats.gradient;
    const Slot flat = writer.make("gradients.flat_partial", {elements}, size == 4 ? DataType::fp32 : DataType::bf16);
    writer.memory_kernel("gradients.flatten_partial", 2 * size * elements);
    writer.collective("gradients.reduce_partial", CollectiveKind::all_reduce, CommGroup::tensor, size * elements);
    writer.memory_kernel("gradients.restore_partial", 2 * size * elements);
    writer.script.drop(flat);
}

bool holds(const std::vector<Parameter>& parameters, const std::string& name) {
    for (const Parameter& parameter : parameters)
        if (parameter.name == name) return true;
    return false;
}

/// The stages that hold a copy of the embedding's table: the first, the one with the loss if the two are tied, and the
/// one with multi-token prediction.
void reduce_embedding_gradient(Writer& writer, const Job& job, const StageLayers& stage,
                               const std::vector<Parameter>& parameters) {
    const bool tied = output_weight(job.scenario) == OutputWeight::copy;
    const bool copied = tied || job.scenario.model.mtp_num_layers > 0;
    const bool here =
        holds(parameters, "embedding.word_embeddings.weight") || (tied && holds(parameters, "output_layer.weight"));
    if (stage.pipeline_size == 1 || !copied || !here) return;
    writer.collective("gradients.reduce_embedding", CollectiveKind::all_reduce, CommGroup::embedding,
                      job.formats.gradient * writer.dim.vocabulary * writer.dim.hidden);
}

/// Where the optimizer works on an fp32 copy of the gradients: made, and with loss scaling divided and searched for
/// infinities.
void prepare_gradients(Writer& writer, const Job& job, std::int64_t owned) {
    if (job.formats.kept_gradient > 0) writer.memory_kernel("optimizer.copy_gradients", (2 + 4) * owned);
    if (job.scenario.precision != types::Precision::fp16) return;
    writer.memory_kernel("optimizer.unscale", 8 * owned);
    writer.script.host_sync(Bytes{4});
}

/// The sum of squares, over ranks, to the host; then every gradient is scaled. One number crosses the ranks: with the
/// distributed optimizer those that share a shard's parameters, else those that split a layer.
void clip_gradients(Writer& writer, const Job& job, std::int64_t owned) {
    const types::ParallelLayout& layout = job.scenario.parallel;
    const std::int64_t size = job.formats.kept_gradient > 0 ? 4 : job.formats.gradient;
    writer.memory_kernel("optimizer.gradient_norm", size * owned);
    if (job.distributed() && layout.dense_replicas() > 1)
        writer.collective("optimizer.reduce_norm", CollectiveKind::all_reduce, CommGroup::dense_replicas, 4);
    if (!job.distributed() && layout.tensor_model_parallel_size > 1)
        writer.collective("optimizer.reduce_norm", CollectiveKind::all_reduce, CommGroup::tensor, 4);
    writer.script.host_sync(Bytes{4});
    writer.memory_kernel("optimizer.clip", 2 * size * owned);
}

/// The device's share of the update.
void update(Writer& writer, const Job& job, std::int64_t owned) {
    if (owned == 0) return;
    const StateFormats& formats = job.formats;
    const std::int64_t gradient = formats.kept_gradient > 0 ? 4 : formats.gradient;
    const std::int64_t parameter = formats.optimizer_holds_main ? formats.parameter : 0;
    writer.memory_kernel("optimizer." + std::string(types::name_of(job.scenario.optimizer.optimizer)),
                         (gradient + 2 * (parameter + formats.main + formats.moments())) * owned);
    if (!formats.optimizer_holds_main)
        writer.memory_kernel("optimizer.copy_parameters", (formats.main + formats.parameter) * owned);
}

/// The host's: the device waits for it.
void update_on_host(Writer& writer, const Job& job) {
    if (job.host.pieces.empty()) return;
    const Slot staged = writer.make("optimizer.staged_parameter", {largest_piece(job.host)}, DataType::fp32);
    Kernel wait{"optimizer.host_update", KernelClass::memory_bound, 0, Bytes{}, false, {}};
    wait.measured = host_update_time(job.scenario, job.host);
    writer.script.kernel(std::move(wait));
    writer.script.drop(staged);
    writer.script.host_sync();
}

/// FP8 weights travel as such; those of MXFP8 as bf16, quantised on arrival.
void gather_bucket(Writer& writer, const Job& job, const ParameterBuffer& buffer, std::int64_t elements, bool waits) {
    const bool mxfp8 = buffer.fp8 && job.scenario.precision == types::Precision::mxfp8;
    const std::int64_t size = buffer.fp8 && !mxfp8 ? 1 : job.formats.parameter;
    instance_collective(writer, "optimizer.gather_" + job.name(buffer), CollectiveKind::all_gather, buffer,
                        size * elements, false, waits);
    if (mxfp8) writer.memory_kernel("optimizer.quantise_" + job.name(buffer), (2 + 2) * elements);
}

void gather_parameters(Writer& writer, const Job& job) {
    for (const ParameterBuffer& buffer : job.buffers) gather_bucket(writer, job, buffer, buffer.padded, true);
}

Job job_of(const Scenario& scenario, const StageLayers& stage) {
    Job job{scenario,
            state_formats(scenario),
            parameter_buffers(scenario, stage.pipeline_rank, parameters_by_chunk(stage)),
            stage.chunks.size() > 1,
            {}};
    job.host = host_share(scenario, job.buffers);
    return job;
}

/// The frame of a chunk that owns its parameter of this number.
std::size_t frame_of(const StageLayers& stage, const ChunkLayers& chunk, std::size_t parameter) {
    std::size_t frame = 0;
    for (std::size_t end = 0;; ++frame) {
        end += stage.scripts[chunk.order[frame]].parameters.size();
        if (parameter < end) return frame;
    }
}

/// One bucket's collective, by the function that writes it.
template <class Write>
OverlappedBucket overlapped_bucket(const Scenario& scenario, const Dimensions& dimensions, std::size_t frame,
                                   const std::string& name, Part part, Write write) {
    ScriptBuilder script(ScriptKind::optimizer, name);
    Writer writer(script, dimensions, scenario);
    script.begin_forward(part);
    write(writer);
    return {frame, script.build()};
}

}  // namespace

void add_overlapped_buckets(const Scenario& scenario, const Dimensions& dimensions, StageLayers& stage) {
    const types::Optimizer& optimizer = scenario.optimizer;
    if (!optimizer.overlap_grad_reduce && !optimizer.overlap_param_gather) return;
    const Job job = job_of(scenario, stage);
    for (const ParameterBuffer& buffer : job.buffers) {
        ChunkLayers& chunk = stage.chunks[buffer.chunk];
        for (std::size_t bucket = 0; bucket < buffer.buckets.size(); ++bucket) {
            const std::size_t frame = frame_of(stage, chunk, buffer.completes[bucket]);
            const std::int64_t elements = buffer.buckets[bucket];
            const std::string name = job.name(buffer) + ", bucket " + std::to_string(bucket);
            if (optimizer.overlap_grad_reduce && buffer.replicas > 1)
                chunk.reductions.push_back(
                    overlapped_bucket(scenario, dimensions, frame, "gradients of " + name, Part::gradients,
                                      [&](Writer& w) { reduce_bucket(w, job, buffer, elements, false); }));
            if (optimizer.overlap_param_gather && buffer.shards > 1)
                chunk.gathers.push_back(
                    overlapped_bucket(scenario, dimensions, frame, "parameters of " + name, Part::optimizer,
                                      [&](Writer& w) { gather_bucket(w, job, buffer, elements, false); }));
        }
    }
    for (ChunkLayers& chunk : stage.chunks) {
        std::stable_sort(chunk.reductions.begin(), chunk.reductions.end(),
                         [](const auto& left, const auto& right) { return left.frame > right.frame; });
        std::stable_sort(chunk.gathers.begin(), chunk.gathers.end(),
                         [](const auto& left, const auto& right) { return left.frame < right.frame; });
    }
}

LayerScript optimizer_step(const Scenario& scenario, const Dimensions& dimensions, const StageLayers& stage) {
    ScriptBuilder script(ScriptKind::optimizer, "optimizer");
    Writer writer(script, dimensions, scenario);
    const std::vector<Parameter> parameters = stage_parameters(stage);
    const Job job = job_of(scenario, stage);
    std::int64_t owned = 0;
    std::int64_t held = 0;
    for (const ParameterBuffer& buffer : job.buffers) {
        owned += buffer.shard;
        held += buffer.padded;
    }
    std::int64_t on_host = 0;
    for (const std::int64_t elements : job.host.elements) on_host += elements;
    script.begin_forward(Part::gradients);
    if (!scenario.optimizer.overlap_grad_reduce) reduce_gradients(writer, job);
    reduce_partial_gradients(writer, job, parameters);
    reduce_embedding_gradient(writer, job, stage, parameters);
    script.part(Part::optimizer);
    prepare_gradients(writer, job, owned);
    clip_gradients(writer, job, owned);
    update(writer, job, owned - on_host);
    update_on_host(writer, job);
    if (job.distributed() && !scenario.optimizer.overlap_param_gather) gather_parameters(writer, job);
    script.part(Part::gradients);
    writer.memory_kernel("gradients.clear", job.formats.gradient * held);
    return script.build();
}

}  // namespace stowage::layers
