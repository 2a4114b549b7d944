// The part of BodyWriter that knows of graphs.
//
// A layer with a graph is written twice. `captured` holds the steps inside the graph: what they allocate comes from the
// graphs' pool. `outside` holds the others, and where the captured ones were, what a launch takes: copies into the
// graph's own buffers, the launch, the wait. References are counted through all steps both times; which side frees a
// tensor follows from where it was made. Transformer Engine keeps a graph's outputs until the backward has been
// captured and its input gradients until the next backward has, and afterwards only points at that memory.
//
// Source: Transformer Engine, pytorch/graph.py (make_graphed_callables with _order), re-described.

#include <algorithm>
#include <utility>

#include "planner/program/body_writer.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::program {

using layers::Slot;

void BodyWriter::enter_step(const layers::StepRange& captured, std::size_t step) {
    const bool was_inside = inside_;
    inside_ = captured.contains(step);
    hidden_ = (side_ == Side::captured && !inside_) || (side_ == Side::outside && inside_);
    if (!inside_ || was_inside || step != captured.begin) return;
    const layers::Phase phase = backward_ ? layers::Phase::backward : layers::Phase::forward;
    std::vector<Slot>& given = backward_ ? graph_gradients_ : graph_inputs_;
    given = graph_inputs();
    std::vector<Bytes>& sizes = backward_ ? surface_.gradients : surface_.inputs;
    sizes.clear();
    for (const Slot slot : given) sizes.push_back(script_.tensors[layers::index(slot)].bytes());
    if (side_ == Side::outside) launch(given, phase);
    if (side_ == Side::captured) emit({.kind = OperationKind::graph_begin});
}

/// What lives outside the graph and is held by variables: into a forward the layer's input, or what the part before the
/// graph made of it; into a backward the gradients so far.
std::vector<Slot> BodyWriter::graph_inputs() const {
    const Slot end = backward_ ? script_.graph_gradient : script_.graph_input;
    if (backward_ ? graphs_->takes_gradient : graphs_->takes_input) return {end};
    std::vector<Slot> inputs;
    for (std::size_t i = 0; i < script_.tensors.size(); ++i) {
        if (!variable_[i] || script_.tensors[i].persistent || owners_[i] == Owner::graph) continue;
        const auto slot = static_cast<Slot>(i);
        const bool taken = backward_ ? made_in_backward_[i] && (slot != layers::kGradOutput || slot == end)
                                     : slot != end && slot != layers::kInput;
        if (taken) inputs.push_back(slot);
    }
    return inputs;
}

/// The graph's own buffer for a tensor that it did not make. A graph of local kind reads its neighbour's in place.
std::optional<BufferRef> BodyWriter::given_to_graph(Slot slot) const {
    if (slot == layers::kOutput || slot == layers::kGradInput) return std::nullopt;
    if (owners_[layers::index(slot)] != Owner::eager) return std::nullopt;
    const auto number_in = [slot](const std::vector<Slot>& given) {
        return static_cast<std::size_t>(std::find(given.begin(), given.end(), slot) - given.begin());
    };
    const std::size_t gradient = number_in(graph_gradients_);
    if (backward_ && gradient < graph_gradients_.size())
        return BufferRef{.space = BufferRef::Space::graph_gradient, .slot = static_cast<std::uint32_t>(gradient)};
    const std::size_t input = number_in(graph_inputs_);
    STOWAGE_CHECK(input < graph_inputs_.size(),
                  script_.name + ": a graph reads what it is not given: " + script_.tensors[layers::index(slot)].name);
    return BufferRef{.space = BufferRef::Space::graph_input, .slot = static_cast<std::uint32_t>(input)};
}

void BodyWriter::launch(const std::vector<Slot>& inputs, layers::Phase phase) {
    part_ = layers::Part::graph;
    phase_ = phase;
    const bool in_place = builder_.stage().graphs.impl == types::CudaGraphImpl::local && in_place_input();
    const bool hidden = std::exchange(hidden_, false);  // what stands in for the captured steps is not
    const auto space = backward_ ? BufferRef::Space::graph_gradient : BufferRef::Space::graph_input;
    for (std::size_t number = 0; number < inputs.size() && !in_place; ++number) {
        const Bytes bytes = script_.tensors[layers::index(inputs[number])].bytes();
        layers::Kernel copy;
        copy.name = "copy into graph";
        copy.traffic = bytes + bytes;
        emit_always({.kind = OperationKind::compute,
                     .kernel_class = copy.kind,
                     .slot = copy_work(buffer_of(inputs[number]),
                                       {.space = space, .slot = static_cast<std::uint32_t>(number)}, bytes),
                     .detail = builder_.label(copy.name),
                     .bytes = bytes,
                     .duration = builder_.durations().kernel(copy, phase)});
    }
    hidden_ = hidden;
    if (hooks_) emit_always({.kind = OperationKind::stream_wait, .stream = Stream::graph, .other = Stream::main});
    emit_always({.kind = OperationKind::graph_launch,
                 .stream = hooks_ ? Stream::graph : Stream::main,
                 .detail = builder_.label(script_.name + (backward_ ? " backward graph" : " graph"))});
    if (hooks_) emit_always({.kind = OperationKind::event_wait, .scope = kGraphScope});
    if (!silent_) launched_at_ = operations_.size();
}

/// Local graphs hand their output on as the next graph's input, if that begins with its layer.
bool BodyWriter::in_place_input() const {
    const Slot slot = backward_ ? script_.graph_gradient : script_.graph_input;
    const bool takes = backward_ ? graphs_->takes_gradient : graphs_->takes_input;
    return takes && owners_[layers::index(slot)] == Owner::neighbour;
}

/// The last captured step of a forward: the hooks' exit, and the outputs that stay.
void BodyWriter::forward_captured() {
    for (std::size_t i = 0; i < script_.tensors.size(); ++i) {
        if (owners_[i] != Owner::graph || !variable_[i]) continue;
        outputs_.push_back(static_cast<Slot>(i));
        ++references_[i];
    }
    if (hooks_) {
        emit({.kind = OperationKind::event_record, .scope = kGraphScope});
        emit({.kind = OperationKind::stream_wait, .stream = Stream::main, .other = Stream::d2h});
    }
    emit({.kind = OperationKind::graph_end});
}

void BodyWriter::backward_captured(const BackwardDecisions& decisions) {
    if (hooks_) {
        emit({.kind = OperationKind::event_record, .scope = kGraphScope});
        emit({.kind = OperationKind::stream_wait, .stream = Stream::main, .other = Stream::h2d});
    }
    emit({.kind = OperationKind::graph_end});
    inside_ = false;
    for (const Slot output : outputs_) unreference(output);
    const auto free_boundary = [&](Scope scope, Slot slot, Slot same_shape) {
        after_capture_.push_back({.kind = OperationKind::free,
                                  .part = part_,
                                  .scope = scope,
                                  .slot = static_cast<std::uint32_t>(slot),
                                  .bytes = script_.tensors[layers::index(same_shape)].bytes()});
    };
    if (output_captured_) free_boundary(kOutputFrame, layers::kInput, layers::kGradOutput);
    if (decisions.frees_previous_gradient) free_boundary(kPreviousGradientFrame, layers::kGradOutput, layers::kInput);
}

}  // namespace stowage::program
