#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/types/bytes.hpp"
#include "scenarios/types/data_type.hpp"
#include "scenarios/types/enum_names.hpp"
#include "scenarios/types/hardware.hpp"
#include "scenarios/types/model.hpp"
#include "scenarios/types/module.hpp"
#include "scenarios/types/parallel.hpp"

namespace stowage::types {

/// Whose layers run: what a module launches, saves and uses as temporaries depends on it.
enum class Implementation : std::uint8_t { megatron, stowage };
template <>
struct EnumNames<Implementation> {
    static constexpr std::array<std::pair<Implementation, std::string_view>, 2> values{
        {{Implementation::megatron, "megatron"}, {Implementation::stowage, "stowage"}}};
};

/// Which Megatron-LM the configuration is for.
enum class RuleSet : std::uint8_t { pr_3219, core_0_18, core_0_19, main_2026_08, dev };
template <>
struct EnumNames<RuleSet> {
    static constexpr std::array<std::pair<RuleSet, std::string_view>, 5> values{
        {{RuleSet::pr_3219, "pr-3219"},
         {RuleSet::core_0_18, "core-0.18"},
         {RuleSet::core_0_19, "core-0.19"},
         {RuleSet::main_2026_08, "main-2026-08"},
         {RuleSet::dev, "dev"}}};
};

enum class Routing : std::uint8_t { balanced, skewed, recorded };
template <>
struct EnumNames<Routing> {
    static constexpr std::array<std::pair<Routing, std::string_view>, 3> values{
        {{Routing::balanced, "balanced"}, {Routing::skewed, "skewed"}, {Routing::recorded, "recorded"}}};
};

struct Batch {
    std::int64_t micro_batch_size = 1;
    std::int64_t global_batch_size = 1;
    std::int64_t seq_length = 0;
    Routing routing = Routing::balanced;
    double routing_skew = 1;  ///< skewed: tokens of the most loaded rank over the mean; at least 1
    friend bool operator==(const Batch&, const Batch&) = default;
};

enum class Precision : std::uint8_t { bf16, fp16, fp32, fp8_delayed, fp8_tensorwise, fp8_blockwise, mxfp8, nvfp4 };
template <>
struct EnumNames<Precision> {
    static constexpr std::array<std::pair<Precision, std::string_view>, 8> values{
        {{Precision::bf16, "bf16"},
         {Precision::fp16, "fp16"},
         {Precision::fp32, "fp32"},
         {Precision::fp8_delayed, "fp8_delayed"},
         {Precision::fp8_tensorwise, "fp8_tensorwise"},
         {Precision::fp8_blockwise, "fp8_blockwise"},
         {Precision::mxfp8, "mxfp8"},
         {Precision::nvfp4, "nvfp4"}}};
};

/// `none`: gradients are made and nothing is updated. No Megatron optimizer; what stowage's own layers run with.
enum class OptimizerKind : std::uint8_t { adam, sgd, muon, none };
template <>
struct EnumNames<OptimizerKind> {
    static constexpr std::array<std::pair<OptimizerKind, std::string_view>, 4> values{{{OptimizerKind::adam, "adam"},
                                                                                       {OptimizerKind::sgd, "sgd"},
                                                                                       {OptimizerKind::muon, "muon"},
                                                                                       {OptimizerKind::none, "none"}}};
};

struct Optimizer {
    OptimizerKind optimizer = OptimizerKind::adam;
    bool use_distributed_optimizer = false;
    bool overlap_grad_reduce = false;
    bool overlap_param_gather = false;
    std::int64_t num_distributed_optimizer_instances = 1;  ///< groups of replicas that each hold all states
    bool use_precision_aware_optimizer = false;            ///< the four types below are in force
    DataType main_grads_dtype = DataType::fp32;
    DataType main_params_dtype = DataType::fp32;
    DataType exp_avg_dtype = DataType::fp32;
    DataType exp_avg_sq_dtype = DataType::fp32;
    bool grad_reduce_in_bf16 = false;          ///< gradients are summed in bf16 instead of fp32
    bool gradient_accumulation_fusion = true;  ///< weight gradients are added inside the GEMM
    bool fp8_param_gather = false;             ///< FP8 linears keep and gather FP8 weights only
    bool optimizer_cpu_offload = false;        ///< states on the host
    double optimizer_offload_fraction = 1;     ///< of the parameters, in order
    bool overlap_cpu_optimizer_d2h_h2d = false;
    friend bool operator==(const Optimizer&, const Optimizer&) = default;
};

enum class RecomputeGranularity : std::uint8_t { none, selective, full };
template <>
struct EnumNames<RecomputeGranularity> {
    static constexpr std::array<std::pair<RecomputeGranularity, std::string_view>, 3> values{
        {{RecomputeGranularity::none, "none"},
         {RecomputeGranularity::selective, "selective"},
         {RecomputeGranularity::full, "full"}}};
};

enum class RecomputeMethod : std::uint8_t { none, uniform, block };
template <>
struct EnumNames<RecomputeMethod> {
    static constexpr std::array<std::pair<RecomputeMethod, std::string_view>, 3> values{
        {{RecomputeMethod::none, "none"}, {RecomputeMethod::uniform, "uniform"}, {RecomputeMethod::block, "block"}}};
};

enum class RecomputeModule : std::uint8_t {
    core_attn,
    moe_act,
    layernorm,
    mla_up_proj,
    mlp,
    moe,
    shared_experts,
    gdn_norm_out,
    gdp_in_proj,
    gdp_qkv,
    mhc,
};
template <>
struct EnumNames<RecomputeModule> {
    static constexpr std::array<std::pair<RecomputeModule, std::string_view>, 11> values{
        {{RecomputeModule::core_attn, "core_attn"},
         {RecomputeModule::moe_act, "moe_act"},
         {RecomputeModule::layernorm, "layernorm"},
         {RecomputeModule::mla_up_proj, "mla_up_proj"},
         {RecomputeModule::mlp, "mlp"},
         {RecomputeModule::moe, "moe"},
         {RecomputeModule::shared_experts, "shared_experts"},
         {RecomputeModule::gdn_norm_out, "gdn_norm_out"},
         {RecomputeModule::gdp_in_proj, "gdp_in_proj"},
         {RecomputeModule::gdp_qkv, "gdp_qkv"},
         {RecomputeModule::mhc, "mhc"}}};
};

struct Recompute {
    RecomputeGranularity recompute_granularity = RecomputeGranularity::none;
    RecomputeMethod recompute_method = RecomputeMethod::none;
    std::optional<std::int64_t> recompute_num_layers;
    std::vector<RecomputeModule> recompute_modules;

    [[nodiscard]] bool selects(RecomputeModule module) const {
        return recompute_granularity == RecomputeGranularity::selective &&
               std::find(recompute_modules.begin(), recompute_modules.end(), module) != recompute_modules.end();
    }
    friend bool operator==(const Recompute&, const Recompute&) = default;
};

enum class CudaGraphImpl : std::uint8_t { none, local, transformer_engine, full_iteration };
template <>
struct EnumNames<CudaGraphImpl> {
    static constexpr std::array<std::pair<CudaGraphImpl, std::string_view>, 4> values{
        {{CudaGraphImpl::none, "none"},
         {CudaGraphImpl::local, "local"},
         {CudaGraphImpl::transformer_engine, "transformer_engine"},
         {CudaGraphImpl::full_iteration, "full_iteration"}}};
};

enum class CudaGraphModule : std::uint8_t { attn, mlp, moe, moe_router, moe_preprocess, mamba };
template <>
struct EnumNames<CudaGraphModule> {
    static constexpr std::array<std::pair<CudaGraphModule, std::string_view>, 6> values{
        {{CudaGraphModule::attn, "attn"},
         {CudaGraphModule::mlp, "mlp"},
         {CudaGraphModule::moe, "moe"},
         {CudaGraphModule::moe_router, "moe_router"},
         {CudaGraphModule::moe_preprocess, "moe_preprocess"},
         {CudaGraphModule::mamba, "mamba"}}};
};

struct CudaGraph {
    CudaGraphImpl cuda_graph_impl = CudaGraphImpl::none;
    std::vector<CudaGraphModule> cuda_graph_modules;  ///< empty: the whole layer
    std::int64_t cuda_graph_warmup_steps = 3;

    [[nodiscard]] bool lists(CudaGraphModule module) const {
        return std::find(cuda_graph_modules.begin(), cuda_graph_modules.end(), module) != cuda_graph_modules.end();
    }
    friend bool operator==(const CudaGraph&, const CudaGraph&) = default;
};

/// Megatron's offload knobs; an absent value is `auto`, left to the planner.
struct Offload {
    std::optional<ModuleSet> offload_modules = ModuleSet{};
    std::optional<double> activation_offload_fraction = 1.0;
    std::int64_t min_offloaded_tensor_size = 1048576;  ///< elements, not bytes
    std::int64_t delta_offload_bytes_across_pp_ranks = 0;
    std::optional<std::int64_t> fine_grained_offloading_max_inflight_offloads;
    std::optional<bool> delay_offload_until_cuda_graph = false;
    friend bool operator==(const Offload&, const Offload&) = default;
};

struct Limits {
    std::optional<Bytes> device_memory;         ///< default: the hardware's
    std::optional<Bytes> host_memory_per_node;  ///< default: the hardware's
    friend bool operator==(const Limits&, const Limits&) = default;
};

enum class Objective : std::uint8_t { step_time, memory };
template <>
struct EnumNames<Objective> {
    static constexpr std::array<std::pair<Objective, std::string_view>, 2> values{
        {{Objective::step_time, "step_time"}, {Objective::memory, "memory"}}};
};

/// A training job: everything that one YAML scenario file says, references resolved and defaults filled in.
struct Scenario {
    std::string name;  ///< the file's name without folder and ending
    Implementation implementation = Implementation::megatron;
    RuleSet rules = RuleSet::main_2026_08;
    std::map<std::string, std::string> env;
    Model model;
    ParallelLayout parallel;
    Batch batch;
    Precision precision = Precision::bf16;
    Optimizer optimizer;
    Recompute recompute;
    CudaGraph cuda_graph;
    Offload offload;
    Hardware hardware;
    Limits limits;
    Objective objective = Objective::step_time;

    [[nodiscard]] std::int64_t microbatches() const {
        return batch.global_batch_size / (batch.micro_batch_size * parallel.data_parallel_size);
    }
    /// Never more than the hardware has.
    [[nodiscard]] Bytes device_memory_limit() const {
        return std::min(limits.device_memory.value_or(hardware.node.device.memory), hardware.node.device.memory);
    }
    [[nodiscard]] Bytes host_memory_limit() const {
        return std::min(limits.host_memory_per_node.value_or(hardware.node.host_memory), hardware.node.host_memory);
    }
};

}  // namespace stowage::types
