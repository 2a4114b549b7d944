// The rules about the job's environment, one entry a rule. E2 is O17, among the rules about offloading alone.
//
// E1 (transformer_impl, there O16) and E5 (checks for NaN) are judged where Megatron's arguments are read, since a
// scenario cannot say either. Not anywhere: E4 and E7, the random number tracker and CPU affinity, which Megatron sets
// by itself; the versions of E6, which are taken to be new enough.

#include "planner/rules/environment_rules.hpp"

#include <fmt/format.h>

#include <array>

#include "planner/rules/downgrades.hpp"
#include "planner/rules/rule_words.hpp"

namespace stowage::rules {
namespace {

using types::CudaGraphImpl;

constexpr const char* kAllocator = "PYTORCH_CUDA_ALLOC_CONF";

/// A variable's value; empty if the job does not set it.
std::string variable(const Case& c, const char* name) {
    const auto found = c.scenario.env.find(name);
    return found == c.scenario.env.end() ? std::string{} : found->second;
}

bool says(const std::string& options, const char* option) { return options.find(option) != std::string::npos; }

Offence registered_buffers(const Case& c) {
    if (c.impl() != CudaGraphImpl::transformer_engine) return std::nullopt;
    if (!says(variable(c, kAllocator), "expandable_segments:True")) return std::nullopt;
    const std::string registered = variable(c, "NCCL_GRAPH_REGISTER");
    if (registered == "0") return std::nullopt;
    return fmt::format("cuda_graph_impl is transformer_engine, env has expandable_segments:True and {}",
                       registered.empty() ? "no NCCL_GRAPH_REGISTER" : "NCCL_GRAPH_REGISTER=" + registered);
}

/// With an implementation that captures, X6 says the same.
Offence no_eager_step_of_listed_modules(const Case& c) {
    const types::CudaGraph& graph = c.scenario.cuda_graph;
    if (c.captures() || graph.cuda_graph_warmup_steps > 0) return std::nullopt;
    const auto plants = [&](std::int64_t layer) {
        return layer_offload(c.scenario.model, graph, c.choice.modules, layer).plants_hooks;
    };
    if (!any_layer(c.scenario.model, plants)) return std::nullopt;
    return fmt::format("cuda_graph_warmup_steps is {}, {}, offload_modules [{}]", graph.cuda_graph_warmup_steps,
                       graph_words(c), c.choice.modules.joined(", "));
}

Offence captured_frees_kept(const Case& c) {
    if (c.scenario.env.empty() || !c.offloads() || c.impl() != CudaGraphImpl::full_iteration) return std::nullopt;
    if (says(variable(c, kAllocator), "graph_capture_record_stream_reuse:True")) return std::nullopt;
    return fmt::format("cuda_graph_impl is full_iteration, {} in env has no graph_capture_record_stream_reuse:True",
                       kAllocator);
}

constexpr std::array kRules = {
    Rule{"E3", kAllSets, Severity::illegal, registered_buffers,
         "NCCL would register buffers of graphs in segments whose memory may be mapped anew.",
         "Set NCCL_GRAPH_REGISTER to 0 in env.", "training/arguments.py, cuda_graph_impl"},
    Rule{"E6", kInGraph, Severity::illegal, no_eager_step_of_listed_modules,
         "A layer with offloaded modules in its listed parts asks for an eager step when it is built, captured or not.",
         "Set cuda_graph_warmup_steps to 1 or more, or leave cuda_graph_modules empty.",
         "transformer_layer.py, offload modules of a layer"},
    Rule{"E8", kSince018, Severity::note, captured_frees_kept,
         "What copies release inside the one graph is then not used again in it, and offloading saves little.",
         "Add graph_capture_record_stream_reuse:True to PYTORCH_CUDA_ALLOC_CONF, as published recipes do.",
         "published recipes of full-iteration graphs"},
};

}  // namespace

std::span<const Rule> environment_rules() { return kRules; }

}  // namespace stowage::rules
