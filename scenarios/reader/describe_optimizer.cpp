#include <optional>

#include "scenarios/reader/drafts.hpp"

namespace stowage::reader {
namespace {

using types::DataType;

/// Two spellings of one thing: Megatron has both.
void describe_reduction(Fields& fields, types::Optimizer& optimizer) {
    std::optional<bool> in_bf16;
    std::optional<bool> in_fp32;
    fields.optional_flag({"grad_reduce_in_bf16", "gradients are kept and summed in bf16, not fp32; default false"},
                         in_bf16, {});
    fields.optional_flag({"accumulate_allreduce_grads_in_fp32", "the opposite of grad_reduce_in_bf16"}, in_fp32, {});
    if (in_bf16 && in_fp32 && *in_bf16 == *in_fp32)
        return fields.problem("accumulate_allreduce_grads_in_fp32",
                              "contradicts grad_reduce_in_bf16, expected one of the two");
    if (in_fp32) optimizer.grad_reduce_in_bf16 = !*in_fp32;
    if (in_bf16) optimizer.grad_reduce_in_bf16 = *in_bf16;
}

/// The types that Megatron's precision-aware optimizer takes.
void describe_precision(Fields& fields, types::Optimizer& optimizer) {
    const std::vector<DataType> moments{DataType::fp32, DataType::fp16, DataType::bf16, DataType::fp8};
    fields.flag({"use_precision_aware_optimizer", "the four types below are in force"},
                optimizer.use_precision_aware_optimizer);
    fields.choice_among({"main_grads_dtype", "gradients that the optimizer reads"}, optimizer.main_grads_dtype,
                        {DataType::fp32, DataType::bf16});
    fields.choice_among({"main_params_dtype", "master parameters"}, optimizer.main_params_dtype,
                        {DataType::fp32, DataType::fp16});
    fields.choice_among({"exp_avg_dtype", "first moments"}, optimizer.exp_avg_dtype, moments);
    fields.choice_among({"exp_avg_sq_dtype", "second moments"}, optimizer.exp_avg_sq_dtype, moments);
}

}  // namespace

void describe_optimizer(Fields& fields, types::Optimizer& optimizer) {
    fields.choice({"optimizer", "which one"}, optimizer.optimizer);
    fields.flag({"use_distributed_optimizer", "states split over data-parallel ranks"},
                optimizer.use_distributed_optimizer);
    fields.flag({"overlap_grad_reduce", "gradient reduction beside the backward"}, optimizer.overlap_grad_reduce);
    fields.flag({"overlap_param_gather", "parameter gathering beside the forward"}, optimizer.overlap_param_gather);
    fields.count({"num_distributed_optimizer_instances", "groups of replicas that each hold all states"},
                 optimizer.num_distributed_optimizer_instances, IntegerRange{1, 1'000'000});
    describe_precision(fields, optimizer);
    describe_reduction(fields, optimizer);
    fields.flag({"gradient_accumulation_fusion", "weight gradients are added inside the GEMM"},
                optimizer.gradient_accumulation_fusion);
    fields.flag({"fp8_param_gather", "FP8 layers keep and gather FP8 weights"}, optimizer.fp8_param_gather);
    fields.flag({"optimizer_cpu_offload", "states on the host"}, optimizer.optimizer_cpu_offload);
    fields.number({"optimizer_offload_fraction", "share of them"}, optimizer.optimizer_offload_fraction,
                  NumberRange{0, 1});
    fields.flag({"overlap_cpu_optimizer_d2h_h2d", "their transfers beside the update"},
                optimizer.overlap_cpu_optimizer_d2h_h2d);
}

}  // namespace stowage::reader
