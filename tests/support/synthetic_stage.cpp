#include "tests/support/synthetic_stage.hpp"

#include <utility>
#include <vector>

#include "planner/layers/layer_graphs.hpp"

namespace stowage::tests {
namespace {

using layers::CopyForm;
using layers::GraphEdge;
using layers::LayerScript;
using layers::Part;
using layers::SavedIndex;
using layers::ScriptBuilder;
using layers::ScriptKind;
using layers::Slot;
using types::KernelClass;
using types::Module;

void add_kernel(ScriptBuilder& script, std::string name, types::Nanoseconds time) {
    script.kernel(
        {.name = std::move(name), .kind = KernelClass::gemm, .flops = 0, .traffic = types::Bytes{0}, .measured = time});
}

/// Writes the forward of a layer and keeps what its backward needs.
class LayerWriter {
public:
    explicit LayerWriter(const SyntheticLayer& layer)
        : layer_(layer), script_(layer.expert_elements > 0 ? ScriptKind::moe_layer : ScriptKind::dense_layer, "layer") {
        script_.boundary({layer.boundary_elements}, {layer.boundary_elements}, types::DataType::bf16);
    }

    LayerScript write() {
        forward();
        backward();
        return script_.build();
    }

private:
    void forward() {
        script_.begin_forward(Part::attn_norm);
        if (layer_.norm) {
            script_.start(Module::attn_norm);
            norm_saved_.push_back(script_.save(layers::kInput, Module::attn_norm));
        }
        const Slot core = core_attn();
        attn_proj(core);
        script_.part(Part::residual);
        const bool experts = layer_.expert_elements > 0;
        const Slot sum = experts ? script_.tensor("middle", {layer_.boundary_elements}) : layers::kOutput;
        script_.allocate(sum);
        add_kernel(script_, "add", layer_.kernel);
        if (layer_.norm) script_.commit(Module::attn_norm, {layers::kInput});
        script_.edge(GraphEdge::mixer);
        if (experts) experts_forward(sum);
        script_.drop(layers::kInput);
    }

    void experts_forward(Slot middle) {
        script_.part(Part::router);
        add_kernel(script_, "router", layer_.kernel);
        script_.edge(GraphEdge::router);
        script_.part(Part::dispatch);
        const Slot tokens = script_.tensor("tokens", {layer_.expert_elements});
        script_.allocate(tokens);
        add_kernel(script_, "permute", layer_.kernel);
        script_.edge(GraphEdge::preprocess);
        script_.part(Part::expert_fc1);
        script_.start(Module::expert_fc1);
        add_kernel(script_, "expert_fc1", layer_.kernel);
        expert_saved_.push_back(script_.save(tokens, Module::expert_fc1));
        script_.commit(Module::expert_fc1, {tokens});
        script_.drop(tokens);
        script_.part(Part::residual);
        script_.allocate(layers::kOutput);
        add_kernel(script_, "expert add", layer_.kernel);
        script_.drop(middle);
    }

    Slot core_attn() {
        script_.part(Part::core_attn);
        const Slot tensor = script_.tensor("core_attn", {layer_.core_attn_elements});
        script_.allocate(tensor);
        script_.start(Module::core_attn);
        add_kernel(script_, "core_attn", layer_.kernel);
        core_saved_.push_back(layer_.gathered ? script_.save_view("core_attn view", tensor, Module::core_attn,
                                                                  {layer_.core_attn_elements / 2}, CopyForm::gathered)
                                              : script_.save(tensor, Module::core_attn));
        if (layer_.weight)
            core_saved_.push_back(
                script_.save(script_.persistent("weight", {layer_.core_attn_elements}), Module::core_attn));
        script_.commit(Module::core_attn);
        if (!layer_.shared) script_.drop(tensor);
        return tensor;
    }

    void attn_proj(Slot core) {
        script_.part(Part::attn_proj);
        const Slot tensor = layer_.shared ? core : script_.tensor("attn_proj", {layer_.attn_proj_elements});
        if (!layer_.shared) script_.allocate(tensor);
        script_.start(Module::attn_proj);
        add_kernel(script_, "attn_proj", layer_.kernel);
        proj_saved_.push_back(script_.save(tensor, Module::attn_proj));
        script_.commit(Module::attn_proj, layer_.shared ? std::vector<Slot>{tensor} : std::vector<Slot>{});
        script_.drop(tensor);
    }

    void backward() {
        script_.begin_backward(Part::residual);
        if (layer_.expert_elements > 0) experts_backward();
        script_.edge(GraphEdge::mixer);
        if (layer_.norm) script_.commit(Module::attn_norm);
        module_backward(Module::attn_proj, Part::attn_proj, "attn_proj backward", proj_saved_);
        module_backward(Module::core_attn, Part::core_attn, "core_attn backward", core_saved_);
        script_.part(Part::attn_norm);
        script_.allocate(layers::kGradInput);
        use(norm_saved_, "add backward");
        if (layer_.norm) script_.start(Module::attn_norm);
        script_.drop(layers::kGradOutput);
    }

    void experts_backward() {
        module_backward(Module::expert_fc1, Part::expert_fc1, "expert_fc1 backward", expert_saved_);
        script_.edge(GraphEdge::preprocess);
        add_kernel(script_, "permute backward", layer_.kernel);
        script_.edge(GraphEdge::router);
        add_kernel(script_, "router backward", layer_.kernel);
    }

    void module_backward(Module module, Part part, const char* kernel, const std::vector<SavedIndex>& saved) {
        script_.part(part);
        script_.commit(module);
        use(saved, kernel);
        script_.start(module);
    }

    void use(const std::vector<SavedIndex>& saved, const char* kernel) {
        for (const SavedIndex entry : saved) script_.read(entry);
        add_kernel(script_, kernel, layer_.kernel);
        for (const SavedIndex entry : saved) script_.forget(entry);
    }

    const SyntheticLayer& layer_;
    ScriptBuilder script_;
    std::vector<SavedIndex> norm_saved_;
    std::vector<SavedIndex> core_saved_;
    std::vector<SavedIndex> proj_saved_;
    std::vector<SavedIndex> expert_saved_;
};

LayerScript embedding(const SyntheticLayer& layer) {
    ScriptBuilder script(ScriptKind::embedding, "embedding");
    script.boundary({0}, {layer.boundary_elements}, types::DataType::bf16);
    script.begin_forward(Part::embedding);
    script.allocate(layers::kOutput);
    add_kernel(script, "embedding", layer.kernel);
    script.begin_backward(Part::embedding);
    add_kernel(script, "embedding backward", layer.kernel);
    script.drop(layers::kGradOutput);
    return script.build();
}

LayerScript head(const SyntheticLayer& layer) {
    ScriptBuilder script(ScriptKind::head, "head");
    script.boundary({layer.boundary_elements}, {0}, types::DataType::bf16);
    script.begin_forward(Part::output_layer);
    const SavedIndex input = script.save(layers::kInput);
    add_kernel(script, "head", layer.kernel);
    script.drop(layers::kInput);
    script.begin_backward(Part::output_layer);
    script.allocate(layers::kGradInput);
    script.read(input);
    add_kernel(script, "head backward", layer.kernel);
    script.forget(input);
    return script.build();
}

LayerScript optimizer(const SyntheticLayer& layer) {
    ScriptBuilder script(ScriptKind::optimizer, "optimizer");
    script.begin_forward(Part::optimizer);
    const Slot scratch = script.tensor("norm", {layer.boundary_elements});
    script.allocate(scratch);
    add_kernel(script, "adam", layer.kernel);
    script.drop(scratch);
    return script.build();
}

/// Adds the script to the stage; result: its place.
std::size_t add(layers::StageLayers& stage, LayerScript script) {
    stage.scripts.push_back(std::move(script));
    return stage.scripts.size() - 1;
}

void append(layers::ChunkLayers& chunk, std::size_t script, std::int64_t count, std::int64_t first_number) {
    for (std::int64_t i = 0; i < count; ++i) {
        chunk.order.push_back(script);
        chunk.layer_numbers.push_back(first_number < 0 ? -1 : first_number + i);
    }
}

}  // namespace

LayerScript synthetic_layer(const SyntheticLayer& layer) { return LayerWriter(layer).write(); }

void use_graphs(layers::StageLayers& stage, const types::CudaGraph& graph) {
    types::Scenario scenario;
    scenario.cuda_graph = graph;
    layers::add_graphs(scenario, stage);
}

layers::StageLayers synthetic_stage(std::int64_t rank, std::int64_t stages, std::int64_t layers,
                                    const SyntheticLayer& layer, std::int64_t virtual_stages) {
    using State = layers::StateBuffer;
    layers::StageLayers stage;
    stage.pipeline_rank = rank;
    stage.pipeline_size = stages;
    stage.microbatch_group = stages;
    stage.chunks.resize(static_cast<std::size_t>(virtual_stages));
    if (rank == 0) append(stage.chunks.front(), add(stage, embedding(layer)), 1, -1);
    const std::size_t middle = add(stage, synthetic_layer(layer));
    for (std::int64_t i = 0; i < virtual_stages; ++i)
        append(stage.chunks[static_cast<std::size_t>(i)], middle, layers, (i * stages + rank) * layers);
    if (rank == stages - 1) append(stage.chunks.back(), add(stage, head(layer)), 1, -1);
    stage.optimizer = optimizer(layer);
    stage.states = {{"weights", types::Bytes{1 << 22}, State::What::weights, State::When::setup},
                    {"moments", types::Bytes{1 << 23}, State::What::optimizer, State::When::first_optimizer_step}};
    stage.boundary = types::Bytes{2 * layer.boundary_elements};
    return stage;
}

}  // namespace stowage::tests
