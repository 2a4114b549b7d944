#include "planner/layers/writer.hpp"

#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "planner/layers/states_formats.hpp"

namespace stowage::layers {
namespace {

std::int64_t product(const Shape& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{});
}

double gemm_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

}  // namespace

Slot Writer::make(std::string name, Shape shape, DataType type) {
    const Slot slot = script.tensor(std::move(name), std::move(shape), type);
    script.allocate(slot);
    return slot;
}

bool Writer::fp8() const {
    switch (scenario.precision) {
        case types::Precision::fp8_delayed:
        case types::Precision::fp8_tensorwise:
        case types::Precision::fp8_blockwise:
        case types::Precision::mxfp8: return true;
        default: return false;
    }
}

bool Writer::block_scaled() const { return scenario.precision == types::Precision::fp8_blockwise; }

void Writer::gemm(std::string name, std::int64_t m, std::int64_t n, std::int64_t k) {
    script.kernel({.name = std::move(name),
                   .kind = KernelClass::gemm,
                   .flops = gemm_flops(m, n, k),
                   .traffic = Bytes{2 * (m * k + k * n + m * n)},
                   .measured = {},
                   .result = Bytes{2 * m * n}});
}

void Writer::linear_gemm(std::string name, std::int64_t m, std::int64_t n, std::int64_t k) {
    grouped_gemm(std::move(name), m, n, k, 1);
}

void Writer::linear_weight_gradient(std::string name, std::int64_t m, std::int64_t n, std::int64_t k) {
    grouped_weight_gradient(std::move(name), m, n, k, 1);
}

void Writer::grouped_gemm(std::string name, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count) {
    const std::int64_t size = fp8() ? 1 : 2;
    script.kernel({.name = std::move(name),
                   .kind = KernelClass::gemm,
                   .flops = gemm_flops(m, n, k),
                   .traffic = Bytes{size * (m * k + count * k * n) + 2 * m * n},
                   .fp8 = fp8(),
                   .measured = {},
                   .block_scaled = block_scaled(),
                   .result = Bytes{2 * m * n},
                   .count = count});
}

void Writer::weight_gradient(std::string name, std::int64_t m, std::int64_t n, std::int64_t k) {
    add_weight_gradient(std::move(name), {n, k}, 1, gemm_flops(m, n, k), 2 * (m * n + m * k), false);
}

void Writer::grouped_weight_gradient(std::string name, std::int64_t m, std::int64_t n, std::int64_t k,
                                     std::int64_t count) {
    const std::int64_t size = fp8() ? 1 : 2;
    add_weight_gradient(std::move(name), {n, k}, count, gemm_flops(m, n, k), size * (m * n + m * k), fp8());
}

void Writer::add_weight_gradient(std::string name, Shape shape, std::int64_t count, double flops, std::int64_t operands,
                                 bool in_fp8) {
    shape[0] *= count;
    const std::int64_t elements = product(shape);
    const bool fused = scenario.optimizer.gradient_accumulation_fusion;
    script.phase(Phase::weight_gradient);
    std::optional<Slot> gradient;
    if (!fused) gradient = make(name + ".gradient", std::move(shape));
    const std::int64_t result = fused ? 2 * state_formats(scenario).gradient : 2;  // a sum is read and written
    script.kernel({.name = name,
                   .kind = KernelClass::gemm,
                   .flops = flops,
                   .traffic = Bytes{operands + result * elements},
                   .fp8 = in_fp8,
                   .measured = {},
                   .block_scaled = in_fp8 && block_scaled(),
                   .result = Bytes{result * elements},
                   .count = count});
    if (gradient) {
        memory_kernel(name + ".accumulate", accumulation_traffic(elements));
        script.drop(*gradient);
    }
    script.phase(Phase::backward);
}

std::int64_t Writer::accumulation_traffic(std::int64_t elements) const {
    return (2 + 2 * state_formats(scenario).gradient) * elements;
}

void Writer::memory_kernel(std::string name, std::int64_t traffic) {
    script.kernel({std::move(name), KernelClass::memory_bound, 0, Bytes{traffic}, false, {}});
}

void Writer::attention_kernel(std::string name, double flops, std::int64_t traffic, const AttentionWork& work) {
    script.kernel({.name = std::move(name),
                   .kind = KernelClass::attention,
                   .flops = flops,
                   .traffic = Bytes{traffic},
                   .measured = {},
                   .attention = work});
}

void Writer::accumulate_small_gradient(const std::string& name, Shape shape) {
    const std::int64_t elements = product(shape);
    const Slot gradient = make(name + ".gradient", std::move(shape));
    script.phase(Phase::weight_gradient);
    memory_kernel(name + ".accumulate", accumulation_traffic(elements));
    script.phase(Phase::backward);
    script.drop(gradient);
}

void Writer::tensor_collective(std::string name, CollectiveKind kind, std::int64_t elements, bool blocks_main) {
    tensor_collective_bytes(std::move(name), kind, 2 * elements, blocks_main);
}

void Writer::tensor_collective_bytes(std::string name, CollectiveKind kind, std::int64_t bytes, bool blocks_main) {
    if (dim.tensor == 1) return;
    script.collective({std::move(name), kind, CommGroup::tensor, Bytes{bytes}, blocks_main});
}

void Writer::collective(std::string name, CollectiveKind kind, CommGroup group, std::int64_t bytes, bool blocks_main) {
    script.collective({std::move(name), kind, group, Bytes{bytes}, blocks_main});
}

void Writer::replicated_parameter(std::string name, Shape shape) {
    const std::int64_t elements = product(shape);
    script.parameter({std::move(name), std::move(shape), ParameterKind::dense, elements});
}

void Writer::sharded_parameter(std::string name, Shape shape) {
    const std::int64_t elements = product(shape) * dim.tensor;
    script.parameter({std::move(name), std::move(shape), ParameterKind::dense, elements});
}

void Writer::norm_parameters(const std::string& name, std::int64_t width) {
    replicated_parameter(name + ".weight", {width});
    if (model.normalization == types::Normalization::LayerNorm) replicated_parameter(name + ".bias", {width});
}

}  // namespace stowage::layers
