#pragma once

// The experts of a rank in stowage's layers: two grouped linears around a SwiGLU that also weighs its rows.
//
// Saved: in the group expert_fc1 the rows that fc1 reads; in moe_act fc1's output and the rows' weights. The weighted
// activation is made again in its backward, beside fc1's gradient, so recomputing moe_act changes nothing. The weights
// multiply in front of fc2, as in Megatron's grouped experts.
//
// Tested by: tests/planner/layers/stowage_moe_test.cpp.

#include "planner/layers/stowage/expert_rows.hpp"

namespace stowage::layers {

class GroupedExperts {
public:
    /// Declares the parameters. Keeps a reference to the writer.
    explicit GroupedExperts(StowageWriter& writer);

    /// Returns fc2's output [expert_tokens, h]. Drops `rows`.
    Slot forward(const ExpertRows& rows);
    /// What the backward reads of it, made a second time there: fc1 alone. Drops `rows`.
    void forward_again(const ExpertRows& rows);
    /// Returns the gradients of rows and weights. Drops `gradient`.
    ExpertRows backward(Slot gradient);

private:
    struct Linear {
        std::string name;
        std::int64_t columns = 0;
        std::int64_t depth = 0;
        ParameterIndex weight{};
    };
    [[nodiscard]] Linear linear(const std::string& name, std::int64_t columns, std::int64_t depth) const;
    void gemm(const Linear& linear, std::string_view end, std::int64_t result_bytes, std::int64_t operand_bytes,
              KernelCall call);
    [[nodiscard]] CallSizes gemm_sizes(const Linear& linear) const;
    void run(const Linear& linear, CallOperand input, Slot output);
    Slot input_gradient(const Linear& linear, Slot gradient);
    void weight_gradient(const Linear& linear, Slot gradient, CallOperand input);
    Slot expand(Slot rows);
    Slot activate(Slot expanded, Slot weights);
    void save_activation(Slot expanded, Slot weights);
    /// Gradients of fc1's output and of the weights; the activation, made again.
    struct Activation {
        Slot gradient{};
        Slot weights{};
        Slot activated{};
    };
    Activation activation_backward(Slot activated_gradient);

    StowageWriter& writer_;
    Linear fc1_;
    Linear fc2_;
    SavedIndex rows_{};
    SavedIndex expanded_{};
    SavedIndex weights_{};
};

}  // namespace stowage::layers
