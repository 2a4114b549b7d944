#include <array>
#include <utility>

#include "scenarios/reader/megatron_arguments_parts.hpp"

namespace stowage::reader {
namespace {

using types::DataType;
using types::Precision;

constexpr std::array<std::pair<std::string_view, Precision>, 4> kRecipes{{
    {"delayed", Precision::fp8_delayed},
    {"tensorwise", Precision::fp8_tensorwise},
    {"blockwise", Precision::fp8_blockwise},
    {"mxfp8", Precision::mxfp8},
}};

void import_fp8(Arguments& arguments, types::Scenario& scenario) {
    const std::string recipe = arguments.text("fp8_recipe", "precision").value_or("delayed");
    arguments.text("fp8_format", "precision");
    for (const auto& [name, precision] : kRecipes)
        if (name == recipe) {
            scenario.precision = precision;
            return;
        }
    arguments.cannot_say("fp8_recipe", "the FP8 recipe " + recipe,
                         "delayed, tensorwise, blockwise and mxfp8 can be described");
}

void import_type(Arguments& arguments, std::string_view name, DataType& type) {
    arguments.choice(name, "optimizer." + std::string(name), type);
}

/// The types count only with the precision-aware optimizer; Megatron refuses others without it.
void import_state_types(Arguments& arguments, types::Optimizer& optimizer) {
    optimizer.use_precision_aware_optimizer =
        arguments.flag("use_precision_aware_optimizer", "optimizer.use_precision_aware_optimizer");
    import_type(arguments, "main_grads_dtype", optimizer.main_grads_dtype);
    import_type(arguments, "main_params_dtype", optimizer.main_params_dtype);
    import_type(arguments, "exp_avg_dtype", optimizer.exp_avg_dtype);
    import_type(arguments, "exp_avg_sq_dtype", optimizer.exp_avg_sq_dtype);
    const types::Optimizer plain;
    for (const auto& [name, type] : {std::pair{"main_grads_dtype", optimizer.main_grads_dtype},
                                     std::pair{"main_params_dtype", optimizer.main_params_dtype},
                                     std::pair{"exp_avg_dtype", optimizer.exp_avg_dtype},
                                     std::pair{"exp_avg_sq_dtype", optimizer.exp_avg_sq_dtype}})
        if (!optimizer.use_precision_aware_optimizer && type != plain.main_grads_dtype)
            arguments.error(name, "other than fp32 without use-precision-aware-optimizer",
                            "Megatron takes it only with use-precision-aware-optimizer");
}

void import_overlap(Arguments& arguments, types::Optimizer& optimizer) {
    optimizer.overlap_grad_reduce = arguments.flag("overlap_grad_reduce", "optimizer.overlap_grad_reduce");
    optimizer.overlap_param_gather = arguments.flag("overlap_param_gather", "optimizer.overlap_param_gather");
}

}  // namespace

void import_precision(Arguments& arguments, types::Scenario& scenario) {
    const bool bf16 = arguments.flag("bf16", "precision");
    const bool fp16 = arguments.flag("fp16", "precision");
    const bool fp8 = arguments.given("fp8_format");
    const bool fp4 = arguments.given("fp4_format");
    if (bf16 && fp16) arguments.error("fp16", "beside bf16", "give one of them");
    scenario.precision = bf16 ? Precision::bf16 : fp16 ? Precision::fp16 : Precision::fp32;
    if (fp8 && fp4) arguments.error("fp4_format", "beside fp8-format", "give one of them");
    if ((fp8 || fp4) && !bf16)
        arguments.cannot_say(fp8 ? "fp8_format" : "fp4_format", "a low precision over parameters other than bf16",
                             "set bf16");
    if (fp8) {
        import_fp8(arguments, scenario);
    } else if (fp4) {
        arguments.text("fp4_format", "precision");
        scenario.precision = Precision::nvfp4;
        if (arguments.text("fp4_recipe", "precision").value_or("nvfp4") != "nvfp4")
            arguments.error("fp4_recipe", "only nvfp4 can be described");
    }
    arguments.pass_over("fp8_recipe", "no effect without fp8-format");
    arguments.pass_over("fp4_recipe", "no effect without fp4-format");
}

void import_optimizer(Arguments& arguments, types::Optimizer& optimizer) {
    constexpr std::string_view kKey = "optimizer.optimizer";
    const std::string kind = arguments.text("optimizer", kKey).value_or("adam");
    if (kind == "adam")
        optimizer.optimizer = types::OptimizerKind::adam;
    else if (kind == "sgd")
        optimizer.optimizer = types::OptimizerKind::sgd;
    else
        arguments.cannot_say("optimizer", "the optimizer " + kind, "adam and sgd can be described");
    optimizer.use_distributed_optimizer =
        arguments.flag("use_distributed_optimizer", "optimizer.use_distributed_optimizer");
    import_overlap(arguments, optimizer);
    arguments.count("num_distributed_optimizer_instances", "optimizer.num_distributed_optimizer_instances",
                    optimizer.num_distributed_optimizer_instances, IntegerRange{1, 1'000'000});
    import_state_types(arguments, optimizer);
    optimizer.grad_reduce_in_bf16 = arguments.flag("grad_reduce_in_bf16", "optimizer.grad_reduce_in_bf16");
    optimizer.gradient_accumulation_fusion =
        !arguments.flag("no_gradient_accumulation_fusion", "optimizer.gradient_accumulation_fusion");
    optimizer.fp8_param_gather = arguments.flag("fp8_param_gather", "optimizer.fp8_param_gather");
    optimizer.optimizer_cpu_offload = arguments.flag("optimizer_cpu_offload", "optimizer.optimizer_cpu_offload");
    arguments.number("optimizer_offload_fraction", "optimizer.optimizer_offload_fraction",
                     optimizer.optimizer_offload_fraction, NumberRange{0, 1});
    optimizer.overlap_cpu_optimizer_d2h_h2d =
        arguments.flag("overlap_cpu_optimizer_d2h_h2d", "optimizer.overlap_cpu_optimizer_d2h_h2d");
}

/// recompute_activations is short for selective recomputation; that is of core_attn unless modules are given.
void import_recompute(Arguments& arguments, types::Recompute& recompute) {
    using types::RecomputeGranularity;
    using types::RecomputeModule;
    arguments.choice("recompute_granularity", "recompute.recompute_granularity", recompute.recompute_granularity);
    if (arguments.flag("recompute_activations", "recompute.recompute_granularity"))
        recompute.recompute_granularity = RecomputeGranularity::selective;
    arguments.choice("recompute_method", "recompute.recompute_method", recompute.recompute_method);
    arguments.count("recompute_num_layers", "recompute.recompute_num_layers", recompute.recompute_num_layers,
                    IntegerRange{0, 100'000});
    std::vector<RecomputeModule> modules{RecomputeModule::core_attn};
    const bool given = arguments.choices("recompute_modules", "recompute.recompute_modules", modules);
    if (arguments.flag("moe_layer_recompute", "recompute.recompute_modules")) {
        if (recompute.recompute_granularity == RecomputeGranularity::none) modules.clear();
        recompute.recompute_granularity = RecomputeGranularity::selective;
        modules.push_back(RecomputeModule::moe);
    }
    if (recompute.recompute_granularity == RecomputeGranularity::selective) recompute.recompute_modules = modules;
    if (given && recompute.recompute_granularity != RecomputeGranularity::selective)
        arguments.finding("recompute_modules", "recompute_modules", false,
                          "recompute-modules has no effect: recompute-granularity is not selective",
                          "Set recompute-granularity to selective, or leave recompute-modules out.");
}

namespace {

std::vector<types::Module> import_offload_modules(Arguments& arguments) {
    std::vector<types::Module> modules;
    const auto words = arguments.words("offload_modules", "offload.offload_modules");
    for (const std::string& word : words.value_or(std::vector<std::string>{})) {
        if (const auto module = types::parse_name<types::Module>(word)) {
            modules.push_back(*module);
            continue;
        }
        Value value;
        value.kind = Value::Kind::scalar;
        value.text = word;
        const ReadScalar read = read_scalar(value, ScalarKind{choice_kind<types::Module>()});
        arguments.reject("offload_modules", "O3", read.message, read.hint);
    }
    return modules;
}

}  // namespace

void import_offload(Arguments& arguments, types::Offload& offload) {
    constexpr IntegerRange kAnyWhole{-1'000'000'000'000, 1'000'000'000'000};
    const bool enabled = arguments.flag("fine_grained_activation_offloading", "offload");
    const std::vector<types::Module> modules = import_offload_modules(arguments);
    if (enabled)
        for (const types::Module module : modules) offload.offload_modules->insert(module);
    else if (!modules.empty())
        arguments.finding("offload_modules", "fine_grained_activation_offloading", false,
                          "offload-modules has no effect: fine-grained-activation-offloading is not set",
                          "Set fine-grained-activation-offloading.");
    if (enabled && modules.empty() && !arguments.given("offload_modules"))
        arguments.finding("fine_grained_activation_offloading", "O2", true,
                          "fine-grained-activation-offloading without offload-modules", "Name the modules to offload.");
    double fraction = 1;
    if (arguments.number("activation_offload_fraction", "offload.activation_offload_fraction", fraction,
                         NumberRange{-1e9, 1e9}))
        offload.activation_offload_fraction = fraction;
    arguments.count("min_offloaded_tensor_size", "offload.min_offloaded_tensor_size", offload.min_offloaded_tensor_size,
                    kAnyWhole);
    arguments.count("delta_offload_bytes_across_pp_ranks", "offload.delta_offload_bytes_across_pp_ranks",
                    offload.delta_offload_bytes_across_pp_ranks, kAnyWhole);
    arguments.count("fine_grained_offloading_max_inflight_offloads",
                    "offload.fine_grained_offloading_max_inflight_offloads",
                    offload.fine_grained_offloading_max_inflight_offloads, kAnyWhole);
    offload.delay_offload_until_cuda_graph =
        arguments.flag("delay_offload_until_cuda_graph", "offload.delay_offload_until_cuda_graph");
}

}  // namespace stowage::reader
