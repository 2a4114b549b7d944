// The rules about graphs without offloading, one entry a rule.
//
// Rules about what a scenario cannot say are judged where Megatron's arguments are read: G1 and G3 (older words among
// the graph modules), G4 (the scope of inference), G5 (cpu_offloading), of G12 the router's padding for quantisation.
// Of G14 to G16 the versions of PyTorch and Transformer Engine are taken to be new enough.

#include "planner/rules/graph_rules.hpp"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "planner/rules/rule_words.hpp"

namespace stowage::rules {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::RecomputeModule;
using types::TokenDispatcher;

/// Whether graphs are of single layers, so that the listed modules mean something.
bool by_layer(const Case& c) {
    return c.impl() == CudaGraphImpl::local || c.impl() == CudaGraphImpl::transformer_engine;
}

/// Local graphs take the router and its preprocessing together or not at all.
bool completes_router(const Case& c) {
    return c.impl() == CudaGraphImpl::local &&
           c.lists(CudaGraphModule::moe_router) != c.lists(CudaGraphModule::moe_preprocess);
}

bool has_dense_layers(const types::Model& model) {
    return any_layer(model,
                     [&](std::int64_t layer) { return model.feed_forward_of(layer) == types::FeedForward::dense; });
}

Offence graphs_if(const Case& c, bool broken) {
    if (!broken) return std::nullopt;
    return graph_words(c);
}

Offence modules_of_the_iteration(const Case& c) {
    return graphs_if(c, c.impl() == CudaGraphImpl::full_iteration && !c.scenario.cuda_graph.cuda_graph_modules.empty());
}

Offence half_a_router(const Case& c) { return graphs_if(c, completes_router(c)); }

Offence experts_and_their_router(const Case& c) {
    return graphs_if(c, by_layer(c) && c.lists(CudaGraphModule::moe) &&
                            (c.lists(CudaGraphModule::moe_router) || completes_router(c)));
}

Offence preprocessing_alone(const Case& c) {
    return graphs_if(c, c.impl() == CudaGraphImpl::transformer_engine && c.lists(CudaGraphModule::moe_preprocess) &&
                            !c.lists(CudaGraphModule::moe_router));
}

Offence experts_of_a_dense_model(const Case& c) {
    const bool experts = c.lists(CudaGraphModule::moe) || c.lists(CudaGraphModule::moe_router) || completes_router(c);
    if (!by_layer(c) || !experts || c.scenario.model.num_experts > 1) return std::nullopt;
    return fmt::format("{}, num_experts is {}", graph_words(c), c.scenario.model.num_experts);
}

Offence dense_part_without_dense_layers(const Case& c) {
    const types::Model& model = c.scenario.model;
    return graphs_if(c,
                     by_layer(c) && c.lists(CudaGraphModule::mlp) && model.num_experts > 1 && !has_dense_layers(model));
}

Offence experts_of_varying_size(const Case& c) {
    return graphs_if(c, by_layer(c) && c.lists(CudaGraphModule::moe) && !c.scenario.model.drop_and_pad());
}

/// Counts of tokens go to the host in the preprocessing of an all-to-all dispatcher that drops without padding.
Offence preprocessing_that_waits(const Case& c) {
    const types::Model& model = c.scenario.model;
    if (!by_layer(c) || !(c.lists(CudaGraphModule::moe_preprocess) || completes_router(c))) return std::nullopt;
    if (model.drop_and_pad() || !model.moe_expert_capacity_factor) return std::nullopt;
    if (c.scenario.parallel.moe_token_dispatcher_type != TokenDispatcher::alltoall) return std::nullopt;
    return fmt::format("{}, moe_expert_capacity_factor is {} without moe_pad_expert_input_to_capacity", graph_words(c),
                       *model.moe_expert_capacity_factor);
}

Offence halves_of_an_overlapped_layer(const Case& c) {
    const bool halves = c.lists(CudaGraphModule::moe) || c.lists(CudaGraphModule::mlp);
    if (!c.scenario.parallel.overlap_moe_expert_parallel_comm || !halves) return std::nullopt;
    if (c.impl() != CudaGraphImpl::transformer_engine) return std::nullopt;
    return graph_words(c) + ", overlap_moe_expert_parallel_comm is true";
}

/// Everything that keeps forwards from running beside backwards.
std::vector<std::string> obstacles_to_overlap(const types::Scenario& scenario) {
    const types::ParallelLayout& parallel = scenario.parallel;
    const types::Recompute& recompute = scenario.recompute;
    std::vector<std::string> found;
    const auto when = [&](bool broken, const char* words) {
        if (broken) found.emplace_back(words);
    };
    when(parallel.pipeline_model_parallel_size > 1 && parallel.num_virtual_stages_per_pipeline_rank == 1,
         "a pipeline has no virtual stages (num_virtual_stages_per_pipeline_rank)");
    when(parallel.expert_model_parallel_size == 1, "expert_model_parallel_size is 1");
    when(parallel.moe_token_dispatcher_type == TokenDispatcher::allgather, "moe_token_dispatcher_type is allgather");
    when(recompute.recompute_granularity == types::RecomputeGranularity::full, "recompute_granularity is full");
    when(recompute.recompute_method != types::RecomputeMethod::none, "recompute_method is set");
    when(recompute.recompute_num_layers.has_value(), "recompute_num_layers is set");
    when(recompute.selects(RecomputeModule::moe), "recompute_modules has moe");
    when(scenario.precision == types::Precision::fp32, "precision is fp32");
    when(parallel.moe_shared_expert_overlap, "moe_shared_expert_overlap is true");
    when(scenario.model.mtp_num_layers > 1, "mtp_num_layers is above 1");
    return found;
}

Offence overlap_with_obstacles(const Case& c) {
    if (!c.scenario.parallel.overlap_moe_expert_parallel_comm) return std::nullopt;
    std::string words;
    for (const std::string& obstacle : obstacles_to_overlap(c.scenario))
        words += (words.empty() ? "overlap_moe_expert_parallel_comm is true, and " : ", and ") + obstacle;
    if (words.empty()) return std::nullopt;
    return words;
}

Offence delayed_gradients_without_overlap(const Case& c) {
    const types::ParallelLayout& parallel = c.scenario.parallel;
    if (!parallel.delay_wgrad_compute || parallel.overlap_moe_expert_parallel_comm) return std::nullopt;
    return "delay_wgrad_compute is true and overlap_moe_expert_parallel_comm is false";
}

/// Megatron judges this by the listed modules, whatever the implementation.
Offence delayed_gradients_in_a_graph(const Case& c) {
    const types::Scenario& scenario = c.scenario;
    const types::Model& model = scenario.model;
    if (!scenario.parallel.delay_wgrad_compute || !scenario.optimizer.overlap_grad_reduce) return std::nullopt;
    const bool attention = c.lists(CudaGraphModule::attn);
    const bool shared = c.lists(CudaGraphModule::moe_router) && model.moe_shared_expert_intermediate_size > 0 &&
                        !scenario.parallel.moe_shared_expert_overlap;
    if (!attention && !shared) return std::nullopt;
    const std::string words = graph_words(c) + ", delay_wgrad_compute and overlap_grad_reduce are true";
    if (!scenario.optimizer.gradient_accumulation_fusion) return words + ", gradient_accumulation_fusion is false";
    if (attention && (model.add_bias_linear || model.add_qkv_bias)) return words + ", and attention has biases";
    return std::nullopt;
}

constexpr std::array kRules = {
    Rule{"G2", kSince018, Severity::illegal, modules_of_the_iteration,
         "One graph of the whole iteration has no parts to choose.", "Leave cuda_graph_modules empty.",
         "transformer_config.py, cuda_graph_modules"},
    Rule{"G6", kAllSets, Severity::legal_with_changes, half_a_router,
         "Local graphs take moe_router and moe_preprocess together, so the other is added.", "List both.",
         "transformer_config.py, cuda_graph_modules"},
    Rule{"G7", kAllSets, Severity::illegal, experts_and_their_router, "moe holds the router already.",
         "Drop moe or moe_router from cuda_graph_modules.", "transformer_config.py, cuda_graph_modules"},
    Rule{"G8", kAllSets, Severity::illegal, preprocessing_alone,
         "The preprocessing of the dispatch is captured behind the router, in the same graph.",
         "Add moe_router to cuda_graph_modules, or drop moe_preprocess.", "transformer_config.py, cuda_graph_modules"},
    Rule{"G9", kAllSets, Severity::illegal, experts_of_a_dense_model, "The model has no experts to route to.",
         "Drop moe, moe_router and moe_preprocess from cuda_graph_modules.",
         "transformer_config.py, cuda_graph_modules"},
    Rule{"G10", kAllSets, Severity::illegal, dense_part_without_dense_layers,
         "mlp is the MLP of dense layers, and every layer of the model has experts.",
         "Drop mlp from cuda_graph_modules.", "transformer_config.py, cuda_graph_modules"},
    Rule{"G11", kAllSets, Severity::illegal, experts_of_varying_size,
         "A graph has fixed shapes, and without dropping and padding the experts' change from step to step.",
         "List moe_router and moe_preprocess instead of moe, or give the model moe_expert_capacity_factor and "
         "moe_pad_expert_input_to_capacity.",
         "transformer_config.py, cuda_graph_modules"},
    Rule{"G12", kAllSets, Severity::illegal, preprocessing_that_waits,
         "The preprocessing then brings counts to the host and waits for them, which no graph can hold.",
         "Drop moe_preprocess from cuda_graph_modules, or set moe_pad_expert_input_to_capacity.",
         "transformer_config.py, cuda_graph_modules"},
    Rule{"G13", kAllSets, Severity::illegal, halves_of_an_overlapped_layer,
         "Overlapped layers run their second half in pieces, which a graph of it would join.",
         "Drop moe and mlp from cuda_graph_modules, or set overlap_moe_expert_parallel_comm to false.",
         "transformer_config.py, overlap_moe_expert_parallel_comm"},
    Rule{"G14", kAllSets, Severity::illegal, overlap_with_obstacles,
         "Forwards run beside backwards only where layers can be taken apart at their expert communication.",
         "Change what is named, or set overlap_moe_expert_parallel_comm to false.",
         "transformer_config.py, overlap_moe_expert_parallel_comm"},
    Rule{"G15", kAllSets, Severity::illegal, delayed_gradients_without_overlap,
         "Weight gradients are delayed to fill the overlap of expert communication, and there is none.",
         "Set delay_wgrad_compute to false, or overlap_moe_expert_parallel_comm to true.",
         "transformer_config.py, delay_wgrad_compute"},
    Rule{"G16", kAllSets, Severity::illegal, delayed_gradients_in_a_graph,
         "Weight gradients of a graph must be summed in place, and those of biases are not delayed with them.",
         "Change what is named, or set delay_wgrad_compute to false.", "training/arguments.py, delay_wgrad_compute"},
};

}  // namespace

std::span<const Rule> graph_rules() { return kRules; }

}  // namespace stowage::rules
