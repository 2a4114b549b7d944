#pragma once

// Writes kernels of stowage's own layers: what each computes, on which buffers, and what it costs, in one call.
//
// Rows are the tokens of a microbatch in the order [s, b]. Products and sums are in fp32, results in bf16. A fused
// operand (bias, addend, residual gradient) is read by the kernel that is there anyway.
//
// Tested by: tests/planner/layers/stowage_layers_test.cpp, tests/planner/program/stowage_programs_test.cpp.

#include <optional>
#include <string>
#include <vector>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/layer_script.hpp"

namespace stowage::layers {

/// Scratch memory of cuBLASLt, one for the rank: all GEMMs run on the main stream.
inline constexpr std::int64_t kGemmWorkspaceBytes = std::int64_t{32} << 20;

/// Megatron's default.
inline constexpr double kNormEpsilon = 1e-5;

/// Number of a parameter among its script's.
enum class ParameterIndex : std::uint16_t {};

/// How a call reaches a tensor, a saved tensor, a parameter or its gradient, or a buffer of the rank.
CallOperand reads(Slot slot);
CallOperand writes(Slot slot);
CallOperand updates(Slot slot);
CallOperand reads(ParameterIndex parameter);
/// The parameter's main gradient, which is added to.
CallOperand adds_to(ParameterIndex parameter);
CallOperand reads(StowageState state);
CallOperand writes(StowageState state);
CallOperand updates(StowageState state);

/// A linear's weight [columns, depth] and bias.
struct LinearWeights {
    std::string name;
    std::int64_t columns = 0;
    std::int64_t depth = 0;
    ParameterIndex weight{};
    std::optional<ParameterIndex> bias;
    bool fp8 = false;  ///< an FP8 copy of the weight stands beside it
};

/// A norm over the hidden width, or over the first `columns` of wider rows: its parameters, and the tensors that it
/// makes.
struct StowageNorm {
    std::string name;
    std::int64_t columns = 0;
    std::int64_t stride = 0;  ///< width of the input's rows; 0: they are `columns` wide
    ParameterIndex weight{};
    std::optional<ParameterIndex> bias;  ///< LayerNorm
    Slot output{};                       ///< as hidden states lie between layers
    Slot rstd{};                         ///< fp32 [local tokens]
    std::optional<Slot> mean;            ///< LayerNorm
};

/// The gradients that norm_backward takes and makes.
struct NormGradients {
    Slot output{};                 ///< of the norm's output
    std::optional<Slot> residual;  ///< of what passes by the norm, added to the result
    Slot input{};                  ///< allocated by the call, unless the norm's rows are a part of its
};

class StowageWriter {
public:
    /// Keeps references to all three.
    StowageWriter(ScriptBuilder& builder, const Dimensions& dimensions, const types::Scenario& job);

    ScriptBuilder& script;
    const Dimensions& dim;
    const types::Scenario& scenario;
    const types::Model& model;

    [[nodiscard]] bool recomputes(types::RecomputeModule module) const { return scenario.recompute.selects(module); }
    /// Whether the linears of layers multiply in FP8.
    [[nodiscard]] bool fp8() const { return scenario.precision == types::Precision::fp8_tensorwise; }
    [[nodiscard]] bool layer_norm() const { return model.normalization == types::Normalization::LayerNorm; }

    /// Declares a tensor and allocates it.
    Slot make(std::string name, Shape shape, DataType type = DataType::bf16);
    /// A parameter that the model has once; `counted` of its elements are the model's, the rest is padding.
    ParameterIndex parameter(std::string name, Shape shape, std::optional<std::int64_t> counted = std::nullopt);
    /// A parameter of this rank's experts [experts, ...]; other ranks have other experts.
    ParameterIndex expert_parameter(std::string name, Shape shape);
    /// A parameter split over tensor-parallel ranks.
    ParameterIndex split_parameter(std::string name, Shape shape);
    /// One that an earlier script of the rank has already; see Parameter::shared.
    ParameterIndex shared_parameter(std::string name, Shape shape);
    /// Split over tensor-parallel ranks by columns or depth; with an FP8 copy where the precision asks for it.
    LinearWeights linear(const std::string& name, std::int64_t columns, std::int64_t depth, bool bias);
    /// Declares parameters and tensors.
    StowageNorm norm(const std::string& name);
    /// Of a compressed row, all of whose tokens this rank has; see StowageNorm.
    StowageNorm latent_norm(const std::string& name, std::int64_t columns, std::int64_t stride);

    /// A kernel bound by memory, with what it reads and writes in bytes.
    void memory_kernel(std::string name, std::int64_t traffic, KernelCall call);
    void attention_kernel(std::string name, double flops, std::int64_t traffic, const AttentionWork& work,
                          KernelCall call);

    /// Allocates the norm's tensors and fills them.
    void run_norm(const StowageNorm& norm, CallOperand input);
    /// `input`, `rstd`, `mean`: of the forward. Allocates `gradients.input`.
    void norm_backward(const StowageNorm& norm, CallOperand input, CallOperand rstd, std::optional<CallOperand> mean,
                       const NormGradients& gradients);

    /// y = input W^T + bias + addend into `output`, which it allocates.
    void run_linear(const LinearWeights& linear, CallOperand input, Slot output,
                    std::optional<CallOperand> addend = std::nullopt);
    /// The input's gradient, allocated [s, b, depth].
    Slot input_gradient(const LinearWeights& linear, CallOperand gradient);
    /// The same into `result`, which is there.
    void input_gradient(const LinearWeights& linear, CallOperand gradient, Slot result);
    /// Adds to the gradients of weight and bias.
    void weight_gradient(const LinearWeights& linear, CallOperand gradient, CallOperand input);
    void bias_gradient(const LinearWeights& linear, CallOperand gradient);

    [[nodiscard]] CallSizes gemm_sizes(const LinearWeights& linear) const;
    /// A product of all tokens with a linear's weight: bytes of its two factors, and of its result.
    void gemm(std::string name, const LinearWeights& linear, std::int64_t operands, std::int64_t result,
              KernelCall call);

    /// Of all tokens.
    [[nodiscard]] CallSizes rows_and_columns(std::int64_t columns) const;
    /// Of the tokens that lie on this rank between layers.
    [[nodiscard]] CallSizes local_rows_and_columns(std::int64_t columns) const;
    /// Bytes of an element of a main gradient.
    [[nodiscard]] std::int64_t gradient_bytes() const { return gradient_type_ == DataType::fp32 ? 4 : 2; }
    [[nodiscard]] DataType gradient_type() const { return gradient_type_; }

private:
    StowageNorm declare_norm(const std::string& name, std::int64_t columns, Shape shape);
    [[nodiscard]] CallSizes norm_sizes(const StowageNorm& norm) const;

    ParameterIndex declare(Parameter parameter);

    DataType gradient_type_{};
};

}  // namespace stowage::layers
