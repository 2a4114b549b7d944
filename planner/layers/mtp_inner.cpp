#include "planner/layers/mtp_inner.hpp"

namespace stowage::layers {

InnerLayer::InnerLayer(Writer& writer, const LayerScript& layer, const std::string& prefix, Ends ends)
    : writer_(writer), layer_(layer), ends_(ends), slots_{ends.input, ends.grad_output}, saved_(layer.saved.size()) {
    ScriptBuilder& script = writer.script;
    for (std::size_t i = slots_.size(); i < layer.tensors.size(); ++i) {
        const Tensor& tensor = layer.tensors[i];
        if (tensor.parameter)
            slots_.push_back(script.persistent(tensor.name, tensor.shape, tensor.type));
        else if (tensor.persistent)
            slots_.push_back(script.held(tensor.name, tensor.shape, tensor.type));
        else
            slots_.push_back(script.tensor(tensor.name, tensor.shape, tensor.type));
    }
    for (Parameter parameter : layer.parameters) {
        parameter.name = prefix + parameter.name;
        script.parameter(std::move(parameter));
    }
}

void InnerLayer::forward() { run(layer_.forward, true); }
void InnerLayer::backward() { run(layer_.backward, false); }

Slot InnerLayer::slot(Slot inner) const {
    if (inner == kOutput) return ends_.output;
    if (inner == kGradInput) return ends_.grad_input;
    return slots_[index(inner)];
}

void InnerLayer::run(const std::vector<Step>& steps, bool forward) {
    const GraphEdges& edges = forward ? layer_.forward_edges : layer_.backward_edges;
    writer_.script.edge(forward ? GraphEdge::begin : GraphEdge::end);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        note_edges(edges, i);
        writer_.script.part(steps[i].part);
        writer_.script.phase(steps[i].phase);
        run_step(steps[i], forward);
    }
    note_edges(edges, steps.size());
    writer_.script.edge(forward ? GraphEdge::end : GraphEdge::begin);
}

/// What the layer noted in front of its step `number`.
void InnerLayer::note_edges(const GraphEdges& edges, std::size_t number) {
    for (std::size_t i = 0; i < edges.size(); ++i)
        if (edges[i] == number) writer_.script.edge(static_cast<GraphEdge>(i));
}

void InnerLayer::run_step(const Step& step, bool forward) {
    ScriptBuilder& script = writer_.script;
    switch (step.kind) {
        case StepKind::allocate: return script.allocate(slot(step.slot));
        case StepKind::drop: return script.drop(slot(step.slot));
        case StepKind::kernel: return script.kernel(layer_.kernels[step.detail]);
        case StepKind::collective: return script.collective(layer_.collectives[step.detail]);
        case StepKind::join_collectives: return script.join_collectives();
        case StepKind::host_sync: return script.host_sync(Bytes{step.detail});
        case StepKind::start: return script.start(step.module);
        case StepKind::commit: {
            std::vector<Slot> released;
            if (forward)
                for (const Slot inner : layer_.releases[step.detail]) released.push_back(slot(inner));
            return script.commit(step.module, std::move(released));
        }
        case StepKind::save: {
            const SavedTensor& saved = layer_.saved[index(step.saved)];
            saved_[index(step.saved)] =
                script.save_view(saved.name, slot(saved.tensor), saved.group, saved.shape, saved.form);
            return;
        }
        case StepKind::read: return script.read(saved_[index(step.saved)]);
        case StepKind::forget: return script.forget(saved_[index(step.saved)]);
    }
}

InnerLayers::InnerLayers(Writer& writer, const std::vector<LayerScript>& layers, const std::string& prefix,
                         InnerLayer::Ends ends) {
    const Shape shape = writer.dim.hidden_shape();
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const std::string number = std::to_string(i);
        InnerLayer::Ends own = ends;
        if (i + 1 < layers.size()) {
            own.output = writer.script.tensor("inner." + number + ".output", shape);
            own.grad_output = writer.script.tensor("inner." + number + ".output_gradient", shape);
        }
        layers_.emplace_back(writer, layers[i], layers.size() == 1 ? prefix : prefix + "layers." + number + ".", own);
        ends.input = own.output;
        ends.grad_input = own.grad_output;
    }
}

void InnerLayers::forward() {
    for (InnerLayer& layer : layers_) layer.forward();
}

void InnerLayers::backward() {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) layer->backward();
}

}  // namespace stowage::layers
