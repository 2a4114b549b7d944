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

    /// Runs the forward of the script. With `silent` only the references are counted: the state that its backward
    /// starts from.
    void forward(const ForwardDecisions& decisions, bool silent);
    /// Runs the backward after a silent forward.
    void backward(const ForwardDecisions& forward_decisions, const BackwardDecisions& decisions);
    /// Runs forward steps of a script without offload groups (the optimizer's).
    void plain_steps(const std::vector<layers::Step>& steps);
    /// Allocates a persistent buffer, slot `slot` of `scope`.
    void state(const layers::StateBuffer& buffer, std::uint32_t slot, Scope scope);

    [[nodiscard]] bool released_while_saved() const { return released_while_saved_; }
    std::vector<Operation> take() { return std::move(operations_); }
    /// The operations of each token exchange with its waits, as positions.
    [[nodiscard]] const std::vector<OperationRange>& exchanges() const { return exchanges_; }

private:
    void emit(Operation operation);
    void common_step(const layers::Step& step);
    void allocate(layers::Slot slot);
    void drop(layers::Slot slot);
    void kernel(const layers::Step& step);
    void collective(const layers::Collective& collective);
    void join_collectives();
    void commit_forward(const layers::Step& step, const ForwardDecisions& decisions);
    void offload(layers::SavedIndex saved, types::Module module);
    void release(layers::Slot slot, types::Module module);
    void start_backward(const ReloadTarget& target);
    void reload(const layers::LayerScript& script, const FrameLayout& layout, layers::SavedIndex saved,
                types::Module module, Stream stream, Scope scope);
    void read(layers::SavedIndex saved, const BackwardDecisions& decisions);
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
    bool silent_ = false;
    bool recomputing_ = false;
    bool released_while_saved_ = false;
    layers::Part part_{};
    layers::Phase phase_{};
};

}  // namespace stowage::program
