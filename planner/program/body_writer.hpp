#pragma once

#include <vector>

#include "planner/program/body_builder.hpp"
#include "planner/program/body_segments.hpp"

namespace stowage::program {

/// Writes the operations of one body while counting who holds each tensor of the frame. Used by BodyBuilder only.
class BodyWriter {
public:
    /// Keeps references to all three.
    BodyWriter(BodyBuilder& builder, const layers::LayerScript& script, const FrameLayout& layout);
    /// Of a script with graphs; both must outlive it. `hooks`: the graph joins the copies in it and runs on the
    /// manager's stream.
    void use_graphs(const layers::LayerGraphs& graphs, bool hooks);

    /// Runs the forward of the script. With `silent` only the references are counted: the state that its backward
    /// starts from.
    void forward(const ForwardDecisions& decisions, bool silent);
    /// Runs the backward after a silent forward.
    void backward(const ForwardDecisions& forward_decisions, const BackwardDecisions& decisions);
    /// After a silent forward: the commits that were delayed.
    void delayed_commits(const ForwardDecisions& decisions);
    /// Runs forward steps of a script without offload groups (the optimizer's).
    void plain_steps(const std::vector<layers::Step>& steps);
    /// Allocates a persistent buffer, slot `slot` of `scope`.
    void state(const layers::StateBuffer& buffer, std::uint32_t slot, Scope scope);
    /// Frees it.
    void free_state(const layers::StateBuffer& buffer, std::uint32_t slot, Scope scope);

    [[nodiscard]] bool released_while_saved() const { return released_while_saved_; }
    [[nodiscard]] bool released_static() const { return released_static_; }
    /// Whether a commit emptied the tensor.
    [[nodiscard]] bool emptied(layers::Slot slot) const { return emptied_[layers::index(slot)]; }
    std::vector<Operation> take() { return std::move(operations_); }
    /// The operations up to and with the wait for the graph's launch.
    [[nodiscard]] std::size_t launched_at() const { return launched_at_; }
    [[nodiscard]] const GraphSurface& surface() const { return surface_; }
    /// The operations of each token exchange with its waits, as positions.
    [[nodiscard]] const std::vector<OperationRange>& exchanges() const { return exchanges_; }

private:
    /// Whose memory a tensor is.
    enum class Owner : std::uint8_t { eager, graph, neighbour };

    void emit(Operation operation);
    void emit_always(Operation operation);
    void enter_step(const layers::StepRange& captured, std::size_t step);
    void unreference(layers::Slot slot);
    void free_memory(layers::Slot slot);
    void save(layers::SavedIndex saved);
    void forward_captured();
    void backward_captured(const BackwardDecisions& decisions);
    void launch(const std::vector<layers::Slot>& inputs, layers::Phase phase);
    [[nodiscard]] std::vector<layers::Slot> graph_inputs() const;
    [[nodiscard]] std::optional<BufferRef> given_to_graph(layers::Slot slot) const;
    [[nodiscard]] bool in_place_input() const;
    [[nodiscard]] bool movable_memory(layers::Slot slot) const;
    void common_step(const layers::Step& step);
    void allocate(layers::Slot slot);
    void drop(layers::Slot slot);
    void kernel(const layers::Step& step);
    [[nodiscard]] std::uint32_t work_of(const layers::KernelCall& call);
    [[nodiscard]] BufferRef buffer_of(const layers::CallOperand& operand) const;
    [[nodiscard]] bool is_weight(layers::Slot slot) const;
    [[nodiscard]] BufferRef buffer_of(layers::Slot slot) const;
    /// `bytes`: what a copying kernel moves; of a copy operation its own bytes count.
    [[nodiscard]] std::uint32_t copy_work(BufferRef from, BufferRef to, Bytes bytes = {});
    void collective(const layers::Collective& collective);
    void join_collectives();
    void host_sync(Bytes copied);
    void commit_forward(const layers::Step& step, const ForwardDecisions& decisions);
    void offload(layers::SavedIndex saved, types::Module module);
    void release(layers::Slot slot, types::Module module);
    void backward_hook(const layers::Step& step, const BackwardDecisions& decisions);
    void planned_hook(layers::StepKind kind, types::Module module, const BackwardDecisions& decisions);
    void await_reload(const ReloadTarget& awaited);
    void join(const ReloadTarget& joined);
    void start_backward(const ReloadTarget& target);
    void reload(const layers::LayerScript& script, const FrameLayout& layout, layers::SavedIndex saved,
                types::Module module, Stream stream, Scope scope);
    void read(layers::SavedIndex saved, const BackwardDecisions& decisions);
    void release_pinned(const FrameLayout& layout, layers::SavedIndex saved, Bytes bytes, types::Module module,
                        Stream stream, Scope scope);
    void planned_read(layers::SavedIndex saved, const BackwardDecisions& decisions);
    void forget(layers::SavedIndex saved, const BackwardDecisions& decisions);
    [[nodiscard]] bool moved(layers::SavedIndex saved) const;
    void check_all_freed(bool input_held) const;

    BodyBuilder& builder_;
    const layers::LayerScript& script_;
    const FrameLayout& layout_;
    std::vector<Operation> operations_;
    std::vector<OperationRange> exchanges_;
    std::vector<Stream> posted_;  ///< with collectives that the main stream has not waited for
    std::vector<int> references_;
    std::vector<bool> emptied_;
    std::vector<bool> held_;  ///< saved entries that autograd holds on the device
    std::vector<bool> read_inline_;
    types::ModuleSet offloaded_;
    types::ModuleSet begun_;  ///< modules whose backward has read something
    const layers::LayerGraphs* graphs_ = nullptr;
    bool hooks_ = false;
    Side side_ = Side::all;
    bool inside_ = false;  ///< the step is one of the graph's
    bool hidden_ = false;  ///< the step is of the other side
    bool backward_ = false;
    std::vector<Owner> owners_;
    std::vector<bool> variable_;  ///< held by a variable
    std::vector<bool> made_in_backward_;
    std::vector<bool> counted_;          ///< saved entries that hold a reference
    std::vector<layers::Slot> outputs_;  ///< of the graph: held until its backward is captured
    std::vector<Operation> after_capture_;
    GraphSurface surface_;
    std::vector<layers::Slot> graph_inputs_;     ///< what its forward was given
    std::vector<layers::Slot> graph_gradients_;  ///< and its backward
    std::size_t launched_at_ = 0;
    bool output_captured_ = false;
    bool released_static_ = false;
    bool silent_ = false;
    bool recomputing_ = false;
    bool has_work_ = false;  ///< the script says what its kernels compute
    bool released_while_saved_ = false;
    layers::Part part_{};
    layers::Phase phase_{};
};

}  // namespace stowage::program
