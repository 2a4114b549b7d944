// Rules about arguments that the scenario language has no key for, judged where the arguments are read; the other rules
// are the planner's. An argument that is not there is taken to be as these rules want it, since files rarely list
// flags. Source: Megatron-LM, core/transformer/transformer_config.py and training/arguments.py, main of August 2026.

#include <algorithm>

#include "scenarios/reader/megatron_arguments_parts.hpp"

namespace stowage::reader {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::RecomputeModule;

/// The arguments, and what was imported of them.
struct Judged {
    Arguments& arguments;
    const types::Scenario& scenario;
    const types::Model& model;

    [[nodiscard]] ModuleSet modules() const { return scenario.offload.offload_modules.value_or(ModuleSet{}); }
    [[nodiscard]] bool moves_experts() const {
        return modules().contains(Module::expert_fc1) || modules().contains(Module::moe_act);
    }
    [[nodiscard]] CudaGraphImpl impl() const { return scenario.cuda_graph.cuda_graph_impl; }
    [[nodiscard]] bool lists(CudaGraphModule module) const {
        const auto& listed = scenario.cuda_graph.cuda_graph_modules;
        return std::find(listed.begin(), listed.end(), module) != listed.end();
    }
    /// Whether the argument stands there as a flag that is not set.
    [[nodiscard]] bool unset(std::string_view name) const { return arguments.has_value(name) && !arguments.set(name); }
    /// Whether it stands there with a number other than 0.
    [[nodiscard]] bool positive(std::string_view name) const {
        const std::string text = arguments.plain(name);
        return arguments.given(name) && text.find_first_of("123456789") != std::string::npos;
    }
    void illegal(std::string_view name, std::string rule, std::string message, std::string nearest) const {
        arguments.finding(name, std::move(rule), true, std::move(message), std::move(nearest));
    }
};

void judge_layer_offload(const Judged& j) {
    const bool by_count = j.positive("cpu_offloading_num_layers");
    if (!j.arguments.set("cpu_offloading") && !by_count) return;
    const std::string_view name = by_count ? "cpu_offloading_num_layers" : "cpu_offloading";
    if (!j.modules().empty())
        j.illegal(name, "O1", "whole layers and single modules are offloaded, and both own the hooks of saved tensors",
                  "Leave cpu-offloading or fine-grained-activation-offloading out.");
    if (j.impl() == CudaGraphImpl::local || j.impl() == CudaGraphImpl::transformer_engine)
        j.illegal(name, "G5", "whole layers are offloaded beside graphs of single layers",
                  "Leave cpu-offloading out, or set cuda-graph-impl to none or full_iteration.");
    if (j.scenario.parallel.pipeline_model_parallel_size > 1)
        j.illegal(name, "cpu_offloading", "whole layers are offloaded in a pipeline",
                  "Leave cpu-offloading out, or use one pipeline stage.");
    if (j.scenario.recompute.recompute_granularity != types::RecomputeGranularity::none)
        j.illegal(name, "cpu_offloading", "whole layers are offloaded and recomputed",
                  "Leave cpu-offloading or recompute-granularity out.");
}

void judge_paged_stash(const Judged& j) {
    if (!j.arguments.set("moe_paged_stash")) return;
    if (j.moves_experts() || j.modules().contains(Module::fused_group_mlp))
        j.illegal("moe_paged_stash", "O13", "the stash and the offload both own the experts' saved tensors",
                  "Drop the expert modules from offload-modules, or leave moe-paged-stash out.");
    if (!j.arguments.given("moe_expert_rank_capacity_factor"))
        j.illegal("moe_paged_stash", "moe_paged_stash", "the stash has no size without moe-expert-rank-capacity-factor",
                  "Give moe-expert-rank-capacity-factor.");
}

void judge_op_fuser(const Judged& j) {
    if (!j.arguments.set("use_transformer_engine_op_fuser")) return;
    j.arguments.keeps("O10");
    if (j.modules() == ModuleSet{Module::fused_group_mlp} && j.model.num_experts > 0) j.arguments.keeps("D10");
    if (j.moves_experts())
        j.illegal("use_transformer_engine_op_fuser", "O15", "the fused experts have no groups expert_fc1 and moe_act",
                  "Offload fused_group_mlp instead, or leave use-transformer-engine-op-fuser out.");
}

void judge_dispatcher(const Judged& j) {
    const types::ParallelLayout& parallel = j.scenario.parallel;
    if (j.arguments.plain("moe_flex_dispatcher_backend") == "ncclep" && parallel.overlap_moe_expert_parallel_comm &&
        parallel.moe_token_dispatcher_type == types::TokenDispatcher::flex && j.modules().contains(Module::expert_fc1))
        j.illegal("moe_flex_dispatcher_backend", "O14", "ncclep with overlap frees the experts' input early",
                  "Drop expert_fc1 from offload-modules, or use another backend.");
    for (const std::string_view name : {"moe_router_padding_for_fp8", "moe_router_padding_for_quantization"})
        if (j.arguments.set(name) && j.impl() != CudaGraphImpl::none && j.lists(CudaGraphModule::moe_preprocess) &&
            !j.model.drop_and_pad() && parallel.moe_token_dispatcher_type == types::TokenDispatcher::alltoall)
            j.illegal(name, "G12", "padding brings counts to the host inside the captured moe_preprocess",
                      "Drop moe_preprocess from cuda-graph-modules, or leave the padding out.");
}

void judge_recomputation(const Judged& j) {
    const types::Recompute& recompute = j.scenario.recompute;
    const bool captured = j.impl() != CudaGraphImpl::none &&
                          (j.scenario.cuda_graph.cuda_graph_modules.empty() || j.lists(CudaGraphModule::moe));
    if (j.positive("moe_input_jitter_eps") && recompute.selects(RecomputeModule::moe) && captured)
        j.illegal("moe_input_jitter_eps", "R5",
                  "a replayed graph cannot give the recomputation the jitter of its forward",
                  "Drop moe from recompute-modules, or leave the jitter out.");
    if (j.unset("moe_grouped_gemm") && recompute.selects(RecomputeModule::moe_act))
        j.illegal("moe_grouped_gemm", "R7", "moe_act is recomputed without moe-grouped-gemm", "Set moe-grouped-gemm.");
}

void judge_environment(const Judged& j) {
    const std::string layers = j.arguments.plain("transformer_impl");
    if (!layers.empty() && layers != "transformer_engine" && !j.modules().empty())
        j.illegal("transformer_impl", "O16", "the hooks are in the layers of Transformer Engine",
                  "Say transformer-impl: transformer_engine.");
    if (j.impl() != CudaGraphImpl::full_iteration) return;
    constexpr std::string_view kOff = "no_check_for_nan_in_loss_and_grad";
    constexpr std::string_view kOn = "check_for_nan_in_loss_and_grad";
    if (j.arguments.set(kOn) || j.unset(kOff))
        j.illegal(j.arguments.set(kOn) ? kOn : kOff, "E5",
                  "the check for NaN waits for the device inside the one graph",
                  "Set no-check-for-nan-in-loss-and-grad.");
    else if (!j.arguments.set(kOff))
        j.arguments.note("full_iteration needs no-check-for-nan-in-loss-and-grad (E5); taken as set");
}

}  // namespace

void judge_other_arguments(Arguments& arguments, const types::Scenario& scenario, const types::Model& model) {
    const Judged judged{arguments, scenario, model};
    judge_layer_offload(judged);
    judge_paged_stash(judged);
    judge_op_fuser(judged);
    judge_dispatcher(judged);
    judge_recomputation(judged);
    judge_environment(judged);
}

}  // namespace stowage::reader
