#pragma once

// Which tensors a stand-in reads and writes: see stand_ins.hpp for the rules.

#include <cstddef>
#include <optional>
#include <vector>

#include "planner/layers/layer_script.hpp"

namespace stowage::program {

/// What one kernel takes, before it is known how much of each its traffic allows.
struct StandInOperands {
    struct Operand {
        layers::CallOperand operand;
        types::Bytes bytes;
        bool boundary = false;  ///< the neighbour's: written whole
    };
    std::vector<Operand> reads;
    std::vector<Operand> writes;
};

/// Follows the steps of a script, forward first.
class OperandFinder {
public:
    /// Keeps a reference. `graphs`: what of the script is captured; null: nothing.
    OperandFinder(const layers::LayerScript& script, const layers::LayerGraphs* graphs);

    void begin_forward();
    void begin_backward();
    /// The next step, in order; `number` among those of its direction.
    void step(const layers::Step& step, std::size_t number);
    /// Of the kernel or collective that the step before was. Takes them: what was read is no longer new.
    StandInOperands take(std::size_t number);
    /// Whether something waits to be written by the step before: output or input gradient, or on its side of a graph.
    [[nodiscard]] bool has_writes(std::size_t number) const;
    /// So much of a tensor was written, of a `take`'s `writes`.
    void wrote(const layers::CallOperand& operand, types::Bytes bytes);

private:
    struct Held {
        bool live = false;      ///< a variable holds it
        bool captured = false;  ///< made inside the graph
        bool backward = false;  ///< made in the backward
        bool lost = false;      ///< copied away before it was written
        types::Bytes written{};
    };
    void begin(const std::vector<layers::Step>& steps, const layers::StepRange* captured);
    void begin_graph();
    void allocate(layers::Slot slot, std::size_t number);
    void leave(layers::Module module, const std::vector<layers::Slot>& released);
    void forget(const layers::CallOperand& operand);
    [[nodiscard]] bool inside(std::size_t number) const { return captured_ != nullptr && captured_->contains(number); }
    [[nodiscard]] layers::Slot slot_of(const layers::CallOperand& operand) const;
    [[nodiscard]] bool may_read(const layers::CallOperand& operand, bool inside) const;
    [[nodiscard]] types::Bytes readable(const layers::CallOperand& operand) const;
    [[nodiscard]] std::size_t boundary_writer(std::size_t behind) const;
    [[nodiscard]] std::optional<std::size_t> last_kernel(std::size_t behind) const;
    [[nodiscard]] std::optional<std::size_t> awaited_collective(std::size_t behind) const;

    const layers::LayerScript& script_;
    const layers::LayerGraphs* graphs_;
    const std::vector<layers::Step>* steps_ = nullptr;
    const layers::StepRange* captured_ = nullptr;
    bool backward_ = false;
    std::vector<Held> held_;
    std::vector<bool> in_graph_buffer_;           ///< by saved: the graph saved its own copy of what it was given
    std::vector<layers::CallOperand> new_;        ///< written and not read yet
    std::vector<layers::Slot> unwritten_;         ///< allocated and not written yet
    std::vector<layers::Slot> given_;             ///< to the graph, in this direction
    std::vector<layers::Slot> given_forward_;     ///< to the forward's
    std::optional<std::size_t> boundary_writer_;  ///< the step that writes output or input gradient
};

}  // namespace stowage::program
