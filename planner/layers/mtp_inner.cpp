#include "planner/layers/mtp_inner.hpp"

namespace stowage::layers {

InnerLayer::InnerLayer(ScriptBuilder& script, const LayerScript& layer, const std::string& prefix, Ends ends)
    : script_(script), layer_(layer), ends_(ends), slots_{ends.input, ends.grad_output}, saved_(layer.saved.size()) {
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
        parameters_.push_back(script.parameter(std::move(parameter)));
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
    script_.edge(forward ? GraphEdge::begin : GraphEdge::end);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        note_edges(edges, i);
        script_.part(steps[i].part);
        script_.phase(steps[i].phase);
        run_step(steps[i], forward);
    }
    note_edges(edges, steps.size());
    script_.edge(forward ? GraphEdge::end : GraphEdge::begin);
}

/// What the layer noted in front of its step `number`.
void InnerLayer::note_edges(const GraphEdges& edges, std::size_t number) {
    for (std::size_t i = 0; i < edges.size(); ++i)
        if (edges[i] == number) script_.edge(static_cast<GraphEdge>(i));
}

Kernel InnerLayer::renumbered(Kernel kernel) const {
    using Kind = CallOperand::Kind;
    for (CallOperand& operand : kernel.call.operands) {
        std::size_t number = operand.index;
        switch (operand.kind) {
            case Kind::tensor: number = index(slot(static_cast<Slot>(number))); break;
            case Kind::saved: number = index(saved_[number]); break;
            case Kind::parameter:
            case Kind::gradient: number = parameters_[number]; break;
            case Kind::state: break;
        }
        operand.index = static_cast<std::uint16_t>(number);
    }
    return kernel;
}

void InnerLayer::run_step(const Step& step, bool forward) {
    switch (step.kind) {
        case StepKind::allocate: return script_.allocate(slot(step.slot));
        case StepKind::drop: return script_.drop(slot(step.slot));
        case StepKind::kernel: return script_.kernel(renumbered(layer_.kernels[step.detail]));
        case StepKind::collective: return script_.collective(layer_.collectives[step.detail]);
        case StepKind::join_collectives: return script_.join_collectives();
        case StepKind::host_sync: return script_.host_sync();
        case StepKind::start: return script_.start(step.module);
        case StepKind::commit: {
            std::vector<Slot> released;
            if (forward)
                for (const Slot inner : layer_.releases[step.detail]) released.push_back(slot(inner));
            return script_.commit(step.module, std::move(released));
        }
        case StepKind::save: {
            const SavedTensor& saved = layer_.saved[index(step.saved)];
            saved_[index(step.saved)] =
                script_.save_view(saved.name, slot(saved.tensor), saved.group, saved.shape, saved.form);
            return;
        }
        case StepKind::read: return script_.read(saved_[index(step.saved)]);
        case StepKind::forget: return script_.forget(saved_[index(step.saved)]);
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
        layers_.emplace_back(writer.script, layers[i], layers.size() == 1 ? prefix : prefix + "layers." + number + ".",
                             own);
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
