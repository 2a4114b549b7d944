#pragma once

#include <string>
#include <vector>

#include "planner/layers/writer.hpp"

namespace stowage::layers {

/// A whole layer inside another script: its steps, tensors and parameters become the other's, and its ends are tensors
/// of the other.
class InnerLayer {
public:
    struct Ends {
        Slot input{};
        Slot output{};
        Slot grad_output{};
        Slot grad_input{};
    };

    /// Declares the layer's tensors and parameters; `prefix` goes before the names of the latter. Keeps references to
    /// builder and layer.
    InnerLayer(ScriptBuilder& script, const LayerScript& layer, const std::string& prefix, Ends ends);

    /// Allocates `output` and drops `input`.
    void forward();
    /// Allocates `grad_input` and drops `grad_output`.
    void backward();

private:
    [[nodiscard]] Slot slot(Slot inner) const;
    void run(const std::vector<Step>& steps, bool forward);
    void note_edges(const GraphEdges& edges, std::size_t number);
    void run_step(const Step& step, bool forward);
    /// With the numbers that the operands have in the other script.
    [[nodiscard]] Kernel renumbered(Kernel kernel) const;

    ScriptBuilder& script_;
    const LayerScript& layer_;
    Ends ends_;
    std::vector<Slot> slots_;
    std::vector<SavedIndex> saved_;
    std::vector<std::size_t> parameters_;
};

/// Layers one after the other between two ends.
class InnerLayers {
public:
    /// `layers` outlives this. One layer's parameters get the prefix as it is; of several each has its number behind
    /// it.
    InnerLayers(Writer& writer, const std::vector<LayerScript>& layers, const std::string& prefix,
                InnerLayer::Ends ends);

    /// As InnerLayer's.
    void forward();
    void backward();

private:
    std::vector<InnerLayer> layers_;
};

}  // namespace stowage::layers
