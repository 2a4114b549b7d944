#pragma once

// What the parts of a layer share: declaring and allocating in one go, kernels with their costs, and collectives that
// vanish where their group has one rank. One Writer writes one script.

#include <string>
#include <vector>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/layer_script.hpp"

namespace stowage::layers {

class Writer {
public:
    /// Keeps references to all three.
    Writer(ScriptBuilder& builder, const Dimensions& dimensions, const types::Scenario& job)
        : script(builder), dim(dimensions), scenario(job), model(job.model) {}

    ScriptBuilder& script;
    const Dimensions& dim;
    const types::Scenario& scenario;
    const types::Model& model;

    /// Whether the linears multiply in FP8.
    [[nodiscard]] bool fp8() const;
    [[nodiscard]] bool recomputes(types::RecomputeModule module) const { return scenario.recompute.selects(module); }

    /// Declares a tensor and allocates it.
    Slot make(std::string name, Shape shape, DataType type = DataType::bf16);

    /// y[m, n] = a[m, k] b[k, n]: 2 m n k operations; every operand read or written once, in 16 bits (router, output
    /// layer).
    void gemm(std::string name, std::int64_t m, std::int64_t n, std::int64_t k);
    /// A weight gradient [n, k] summed over m tokens, added to the main gradient by the GEMM itself, or without
    /// gradient_accumulation_fusion made in bf16 and added by autograd's hook.
    void weight_gradient(std::string name, std::int64_t m, std::int64_t n, std::int64_t k);
    /// The same two for a linear of a layer: operands have the precision of the scenario, results that of the above.
    void linear_gemm(std::string name, std::int64_t m, std::int64_t n, std::int64_t k);
    void linear_weight_gradient(std::string name, std::int64_t m, std::int64_t n, std::int64_t k);
    /// The last two for `count` equally wide matrices that share the m tokens (experts): operations as above, weights
    /// read `count` times.
    void grouped_gemm(std::string name, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count);
    void grouped_weight_gradient(std::string name, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count);
    /// A kernel bound by memory; `traffic` is bytes read plus bytes written.
    void memory_kernel(std::string name, std::int64_t traffic);
    void attention_kernel(std::string name, double flops, std::int64_t traffic, const AttentionWork& work);
    /// The bf16 gradient of a small parameter (norm, bias, router): made, added to the main gradient, dropped.
    void accumulate_small_gradient(const std::string& name, Shape shape);
    /// Bytes that adding a bf16 gradient to the main gradient reads and writes.
    [[nodiscard]] std::int64_t accumulation_traffic(std::int64_t elements) const;

    /// Over the tensor-parallel group; nothing with one rank.
    void tensor_collective(std::string name, CollectiveKind kind, std::int64_t elements, bool blocks_main = true);
    void tensor_collective_bytes(std::string name, CollectiveKind kind, std::int64_t bytes, bool blocks_main = true);
    void collective(std::string name, CollectiveKind kind, CommGroup group, std::int64_t bytes,
                    bool blocks_main = true);

    /// Declares a parameter that every tensor-parallel rank holds whole.
    void replicated_parameter(std::string name, Shape shape);
    /// Declares a parameter split over the tensor-parallel ranks; `shape` is this rank's share.
    void sharded_parameter(std::string name, Shape shape);
    /// Scale of a norm over `width`, and its bias for LayerNorm.
    void norm_parameters(const std::string& name, std::int64_t width);

private:
    [[nodiscard]] bool block_scaled() const;
    /// `count` matrices of `shape` by as many GEMMs. `operands`: bytes that they read beside the sums.
    void add_weight_gradient(std::string name, Shape shape, std::int64_t count, double flops, std::int64_t operands,
                             bool in_fp8);
};

}  // namespace stowage::layers
