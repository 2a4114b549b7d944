#include "planner/layers/stowage/stowage_optimizer.hpp"

#include <algorithm>
#include <string>

#include "planner/layers/stowage/stowage_states.hpp"
#include "planner/layers/stowage/stowage_writer.hpp"

namespace stowage::layers {
namespace {

using types::Scenario;

/// Megatron's default of --clip-grad.
constexpr double kLongestGradient = 1.0;

bool updates_parameters(const Scenario& scenario) { return scenario.optimizer.optimizer != types::OptimizerKind::none; }

bool ends_with(const std::string& name, const std::string& ending) {
    return name.size() >= ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
}

/// Replicated over tensor-parallel ranks, and fed with the rank's own heads, or with its own tokens alone.
bool has_partial_gradient(const std::string& name, const types::ParallelLayout& layout) {
    if (layout.tensor_model_parallel_size == 1) return false;
    if (name.find("q_norm.") != std::string::npos || name.find("k_norm.") != std::string::npos) return true;
    return layout.sequence_parallel && (name.find("norm.") != std::string::npos || ends_with(name, "router.weight"));
}

/// The first stage's table of embeddings and the last one's, which looks up what it predicts from.
bool has_a_copy(const std::string& name, const Scenario& scenario) {
    return scenario.model.mtp_num_layers > 0 && scenario.parallel.pipeline_model_parallel_size > 1 &&
           name == "embedding.word_embeddings.weight";
}

template <class Visit>
void each_parameter(const StageLayers& stage, Visit visit) {
    for (const ChunkLayers& chunk : stage.chunks)
        for (const std::size_t script : chunk.order)
            for (const Parameter& parameter : stage.scripts[script].parameters)
                if (!parameter.shared) visit(parameter);
}

/// One part of so many, in whole places.
std::int64_t part_of(std::int64_t elements, std::int64_t parts) { return place_length((elements + parts - 1) / parts); }

bool is_distributed(const StowageWriter& writer, const OptimizerShare& share) {
    return share.owned > 0 && writer.scenario.optimizer.use_distributed_optimizer;
}

/// Over the ranks that hold the same parameters, which are others for experts. `bytes`: of an element.
void over_replicas(StowageWriter& writer, const std::string& name, CollectiveKind kind, const OptimizerShare& share,
                   std::int64_t bytes) {
    const types::ParallelLayout& layout = writer.scenario.parallel;
    const std::int64_t dense = share.elements - share.experts;
    if (layout.dense_replicas() > 1 && dense > 0)
        writer.script.collective({name, kind, CommGroup::dense_replicas, Bytes{bytes * dense}, true});
    if (layout.expert_replicas() > 1 && share.experts > 0)
        writer.script.collective(
            {name + "_experts", kind, CommGroup::expert_replicas, Bytes{bytes * share.experts}, true});
}

void reduce_gradients(StowageWriter& writer, const OptimizerShare& share) {
    const std::int64_t size = writer.gradient_bytes();
    over_replicas(writer, "gradients.reduce",
                  is_distributed(writer, share) ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce, share,
                  size);
    if (share.partial > 0)
        writer.script.collective({"gradients.reduce_partial", CollectiveKind::all_reduce, CommGroup::tensor,
                                  Bytes{size * share.partial}, true});
    if (share.copied > 0)
        writer.script.collective({"gradients.reduce_embedding", CollectiveKind::all_reduce, CommGroup::embedding,
                                  Bytes{size * share.copied}, true});
}

CallSizes owned_sizes(const StowageWriter& writer, const OptimizerShare& share) {
    CallSizes sizes;
    sizes.rows = share.owned;
    sizes.gradient_type = writer.gradient_type();
    return sizes;
}

/// One number crosses ranks: with the distributed optimizer those that share the parameters' states, else those that
/// split a layer.
void measure_gradients(StowageWriter& writer, const OptimizerShare& share) {
    const types::ParallelLayout& layout = writer.scenario.parallel;
    const std::int64_t partials = norm_partials(share.owned);
    KernelCall call{Call::gradient_norm, owned_sizes(writer, share), {reads(StowageState::gradients)}};
    call.sizes.value = kLongestGradient;
    call.sizes.workspace_bytes = 4 * partials;
    const Slot workspace = writer.make("optimizer.partial_sums", {partials}, DataType::fp32);
    call.operands.push_back(updates(StowageState::gradient_norm));
    call.operands.push_back(writes(workspace));
    writer.memory_kernel("optimizer.gradient_norm", writer.gradient_bytes() * share.owned, std::move(call));
    writer.script.drop(workspace);
    const bool distributed = is_distributed(writer, share) && layout.dense_replicas() > 1;
    if (distributed || layout.tensor_model_parallel_size > 1)
        writer.script.collective({"optimizer.reduce_norm", CollectiveKind::all_reduce,
                                  distributed ? CommGroup::dense_replicas : CommGroup::tensor, Bytes{4}, true});
}

/// The gradient is read, main parameter and moments are read and written, the bf16 parameter is written.
void update_parameters(StowageWriter& writer, const OptimizerShare& share) {
    writer.memory_kernel("optimizer.adam", (writer.gradient_bytes() + 2 * 3 * 4 + 2) * share.owned,
                         {Call::adam_update,
                          owned_sizes(writer, share),
                          {reads(StowageState::gradients), reads(StowageState::gradient_norm),
                           updates(StowageState::master_parameters), updates(StowageState::first_moment),
                           updates(StowageState::second_moment), writes(StowageState::parameters)}});
    if (is_distributed(writer, share)) over_replicas(writer, "optimizer.gather", CollectiveKind::all_gather, share, 2);
}

}  // namespace

OptimizerShare optimizer_share(const Scenario& scenario, const StageLayers& stage, std::int64_t elements) {
    OptimizerShare share;
    share.elements = elements;
    each_parameter(stage, [&](const Parameter& parameter) {
        const std::int64_t length = place_length(parameter.elements());
        if (parameter.kind == ParameterKind::expert) share.experts += length;
        if (has_partial_gradient(parameter.name, scenario.parallel)) share.partial += length;
        if (has_a_copy(parameter.name, scenario)) share.copied += parameter.elements();
    });
    if (!updates_parameters(scenario)) return share;
    share.owned = elements;
    if (scenario.optimizer.use_distributed_optimizer)
        share.owned = std::min(elements, part_of(elements - share.experts, scenario.parallel.dense_replicas()) +
                                             part_of(share.experts, scenario.parallel.expert_replicas()));
    return share;
}

std::vector<StateBuffer> optimizer_states(const OptimizerShare& share) {
    using What = StateBuffer::What;
    using When = StateBuffer::When;
    if (share.owned == 0) return {};
    const Bytes values{4 * share.owned};
    return {{"main parameters", values, What::optimizer, When::setup, StowageState::master_parameters},
            {"first moments", values, What::optimizer, When::setup, StowageState::first_moment},
            {"second moments", values, What::optimizer, When::setup, StowageState::second_moment},
            {"gradient norm", Bytes{2 * 4}, What::workspace, When::setup, StowageState::gradient_norm}};
}

LayerScript stowage_optimizer(const Scenario& scenario, const Dimensions& dimensions, const OptimizerShare& share) {
    ScriptBuilder script(ScriptKind::optimizer, "optimizer");
    StowageWriter writer(script, dimensions, scenario);
    script.begin_forward(Part::gradients);
    reduce_gradients(writer, share);
    if (share.owned > 0) {
        script.part(Part::optimizer);
        measure_gradients(writer, share);
        update_parameters(writer, share);
        script.part(Part::gradients);
    }
    const std::int64_t bytes = writer.gradient_bytes() * share.elements;
    CallSizes sizes;
    sizes.rows = bytes;
    sizes.gradient_type = writer.gradient_type();
    writer.memory_kernel("gradients.clear", bytes, {Call::clear, sizes, {writes(StowageState::gradients)}});
    return script.build();
}

}  // namespace stowage::layers
