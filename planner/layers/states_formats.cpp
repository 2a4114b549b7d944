#include "planner/layers/states_formats.hpp"

namespace stowage::layers {
namespace {

using types::DataType;
using types::Precision;
using types::Scenario;

constexpr int kBlackwell = 100;

std::int64_t ceil_div(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }
std::int64_t round_up(std::int64_t value, std::int64_t unit) { return ceil_div(value, unit) * unit; }

bool is_tensor_scaled(Precision precision) {
    return precision == Precision::fp8_delayed || precision == Precision::fp8_tensorwise;
}

bool sums_in_fp32(const Scenario& scenario) {
    const types::Optimizer& optimizer = scenario.optimizer;
    if (scenario.precision == Precision::fp16) return false;
    return !optimizer.grad_reduce_in_bf16 &&
           !(optimizer.use_precision_aware_optimizer && optimizer.main_grads_dtype != DataType::fp32);
}

/// Megatron's use_precision_aware_optimizer_no_fp8_or_ds_fp8: Transformer Engine's Adam holds the main parameters.
bool adam_holds_main(const Scenario& scenario) {
    const types::Optimizer& optimizer = scenario.optimizer;
    const bool plain = !is_fp8(scenario.precision) || scenario.precision == Precision::fp8_delayed;
    return optimizer.use_precision_aware_optimizer &&
           (optimizer.main_params_dtype != DataType::fp32 || plain || optimizer.optimizer_cpu_offload);
}

/// Scales of one direction: one value for `block` elements of a row, tiles of 128 rows x 4 values.
std::int64_t tiled_scales(std::int64_t rows, std::int64_t columns, std::int64_t block) {
    return round_up(rows, 128) * round_up(ceil_div(columns, block), 4);
}

std::int64_t block_scales(std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t kBlock = 128;
    return 4 * ceil_div(rows, kBlock) * round_up(ceil_div(columns, kBlock), 4);
}

}  // namespace

bool is_fp8(Precision precision) {
    return is_tensor_scaled(precision) || precision == Precision::fp8_blockwise || precision == Precision::mxfp8;
}

bool holds_fp8_parameters(const Scenario& scenario) {
    return scenario.optimizer.fp8_param_gather && is_fp8(scenario.precision);
}

StateFormats state_formats(const Scenario& scenario) {
    const types::Optimizer& optimizer = scenario.optimizer;
    StateFormats formats;
    formats.gradient = sums_in_fp32(scenario) ? 4 : 2;
    formats.optimizer_holds_main = adam_holds_main(scenario);
    if (optimizer.use_precision_aware_optimizer) {
        formats.exp_avg = size_of(optimizer.exp_avg_dtype);
        formats.exp_avg_sq = size_of(optimizer.exp_avg_sq_dtype);
        formats.main = size_of(optimizer.main_params_dtype);
    }
    if (optimizer.optimizer == types::OptimizerKind::sgd) formats.exp_avg_sq = 0;
    // Adam on the host and beside it knows no other types than fp32.
    if (optimizer.optimizer_cpu_offload) {
        formats.main = formats.exp_avg = formats.exp_avg_sq = 4;
        formats.optimizer_holds_main = false;
    }
    const bool remainders = formats.main == 4 && scenario.precision != Precision::fp16;
    if (formats.optimizer_holds_main && remainders) formats.main = 2;
    if (!formats.optimizer_holds_main && formats.gradient < 4) formats.kept_gradient = 4;
    return formats;
}

Bytes quantized_weight(const Scenario& scenario, const Shape& shape) {
    const std::int64_t rows = shape.at(0);
    const std::int64_t columns = shape.at(1);
    const std::int64_t elements = rows * columns;
    const int capability = scenario.hardware.node.device.compute_capability;
    switch (scenario.precision) {
        case Precision::fp8_delayed:
        case Precision::fp8_tensorwise: {
            const bool transposed = capability < kBlackwell;
            return Bytes{elements * (transposed ? 2 : 1) + 4};
        }
        case Precision::fp8_blockwise:
            return Bytes{2 * elements + block_scales(rows, columns) + block_scales(columns, rows)};
        case Precision::mxfp8:
            return Bytes{2 * elements + tiled_scales(rows, columns, 32) + tiled_scales(columns, rows, 32)};
        case Precision::nvfp4:
            return Bytes{elements + tiled_scales(rows, columns, 16) + tiled_scales(columns, rows, 16) + 8};
        case Precision::bf16:
        case Precision::fp16:
        case Precision::fp32: return {};
    }
    return {};
}

}  // namespace stowage::layers
