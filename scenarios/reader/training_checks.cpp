#include "scenarios/reader/check_tools.hpp"
#include "scenarios/reader/checks.hpp"

namespace stowage::reader {
namespace {

using types::DataType;
using types::Precision;

constexpr std::string_view kDistributed = "optimizer.use_distributed_optimizer";
constexpr std::string_view kAware = "optimizer.use_precision_aware_optimizer";

bool is_fp8(Precision precision) {
    return precision == Precision::fp8_delayed || precision == Precision::fp8_tensorwise ||
           precision == Precision::fp8_blockwise || precision == Precision::mxfp8;
}

/// Source: Megatron-LM, optimizer_config.py.
void check_precision_aware(Gathered& gathered, const types::Optimizer& optimizer) {
    if (optimizer.use_precision_aware_optimizer) {
        require(gathered, kAware, optimizer.optimizer != types::OptimizerKind::adam, "optimizer: adam");
        require(gathered, kAware, !optimizer.use_distributed_optimizer, "use_distributed_optimizer: true");
        return;
    }
    const auto needs = [&](std::string_view path, DataType type) {
        require(gathered, path, type != DataType::fp32, "use_precision_aware_optimizer: true");
    };
    needs("optimizer.main_grads_dtype", optimizer.main_grads_dtype);
    needs("optimizer.main_params_dtype", optimizer.main_params_dtype);
    needs("optimizer.exp_avg_dtype", optimizer.exp_avg_dtype);
    needs("optimizer.exp_avg_sq_dtype", optimizer.exp_avg_sq_dtype);
}

/// Source: Megatron-LM, arguments.py.
void check_host_states(Gathered& gathered, const types::Optimizer& optimizer) {
    constexpr std::string_view kOffload = "optimizer.optimizer_cpu_offload";
    constexpr std::string_view kFraction = "optimizer.optimizer_offload_fraction";
    require(gathered, kOffload, optimizer.optimizer_cpu_offload && !optimizer.use_precision_aware_optimizer,
            "use_precision_aware_optimizer: true");
    if (optimizer.optimizer_cpu_offload) return;
    require(gathered, kFraction, gathered.where.contains(kFraction) && !gathered.where.contains(kOffload),
            "optimizer_cpu_offload: true");
    require(gathered, "optimizer.overlap_cpu_optimizer_d2h_h2d", optimizer.overlap_cpu_optimizer_d2h_h2d,
            "optimizer_cpu_offload: true");
}

/// Source: Megatron-LM, arguments.py and parallel_state.py.
void check_distributed(Gathered& gathered, const types::Scenario& scenario) {
    constexpr std::string_view kGather = "optimizer.overlap_param_gather";
    constexpr std::string_view kInstances = "optimizer.num_distributed_optimizer_instances";
    const types::Optimizer& optimizer = scenario.optimizer;
    const bool alone = !optimizer.use_distributed_optimizer;
    require(gathered, kGather, optimizer.overlap_param_gather && alone, "use_distributed_optimizer: true");
    require(gathered, kGather, optimizer.overlap_param_gather && !optimizer.overlap_grad_reduce,
            "overlap_grad_reduce: true");
    const std::int64_t instances = optimizer.num_distributed_optimizer_instances;
    if (instances == 1 || unread(gathered, kInstances)) return;
    require(gathered, kInstances, alone, "use_distributed_optimizer: true");
    if (all_read(gathered, {kData, kContext}) && scenario.parallel.data_parallel_size > 0)
        require_multiple(gathered, kInstances, "data_parallel_size x context_parallel_size",
                         product(scenario.parallel.data_parallel_size, scenario.parallel.context_parallel_size),
                         "num_distributed_optimizer_instances", instances);
}

/// Compute capability from which Transformer Engine has a precision; 0: everywhere.
int least_capability(Precision precision) {
    constexpr int kAda = 89;
    constexpr int kHopper = 90;
    constexpr int kBlackwell = 100;
    switch (precision) {
        case Precision::fp8_delayed:
        case Precision::fp8_tensorwise: return kAda;
        case Precision::fp8_blockwise: return kHopper;
        case Precision::mxfp8:
        case Precision::nvfp4: return kBlackwell;
        case Precision::bf16:
        case Precision::fp16:
        case Precision::fp32: break;
    }
    return 0;
}

void check_precision(Gathered& gathered, const types::Scenario& scenario) {
    constexpr std::string_view kPrecision = "precision";
    constexpr std::string_view kGather = "optimizer.fp8_param_gather";
    if (unread(gathered, kPrecision)) return;
    if (scenario.optimizer.fp8_param_gather) {
        require(gathered, kGather, !is_fp8(scenario.precision), "an FP8 precision");
        require(gathered, kGather, !scenario.optimizer.use_distributed_optimizer, "use_distributed_optimizer: true");
    }
    if (unread(gathered, "hardware.node")) return;
    const types::Device& device = scenario.hardware.node.device;
    const int least = least_capability(scenario.precision);
    const std::string name(types::name_of(scenario.precision));
    if (device.compute_capability < least)
        report(gathered, kPrecision,
               name + " needs compute_capability " + std::to_string(least) + ", but the device has " +
                   std::to_string(device.compute_capability));
    else if (is_fp8(scenario.precision) && !(device.gemm_fp8.rate > 0))
        report(
            gathered, kPrecision, name + " needs the device's gemm_fp8_tflop_per_s",
            "give it in the hardware file, or as hardware: {node: {from: ..., device: {gemm_fp8_tflop_per_s: ...}}}");
}

}  // namespace

void check_training(Gathered& gathered, const types::Scenario& scenario) {
    if (all_read(gathered, {"optimizer", kDistributed, kAware})) {
        check_precision_aware(gathered, scenario.optimizer);
        check_host_states(gathered, scenario.optimizer);
        check_distributed(gathered, scenario);
    }
    check_precision(gathered, scenario);
    require(gathered, "batch.routing_skew",
            scenario.batch.routing_skew != 1 && scenario.batch.routing != types::Routing::skewed &&
                !unread(gathered, "batch.routing"),
            "routing: skewed");
}

}  // namespace stowage::reader
