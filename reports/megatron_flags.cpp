#include "reports/megatron_flags.hpp"

#include <fmt/format.h>

namespace stowage::reports {
namespace {

void add_graphs(MegatronFlags& flags, const types::CudaGraph& graph, types::RuleSet rules) {
    using types::CudaGraphImpl;
    if (graph.cuda_graph_impl == CudaGraphImpl::none) return;
    flags.arguments.push_back(fmt::format("--cuda-graph-impl {}", types::name_of(graph.cuda_graph_impl)));
    std::string modules;
    for (const types::CudaGraphModule module : graph.cuda_graph_modules)
        modules += " " + std::string(types::name_of(module));
    if (!modules.empty())
        flags.arguments.push_back((rules == types::RuleSet::pr_3219 ? "--cuda-graph-scope" : "--cuda-graph-modules") +
                                  modules);
    if (graph.cuda_graph_warmup_steps != types::CudaGraph{}.cuda_graph_warmup_steps)
        flags.arguments.push_back(fmt::format("--cuda-graph-warmup-steps {}", graph.cuda_graph_warmup_steps));
    if (graph.cuda_graph_impl == CudaGraphImpl::full_iteration)
        flags.arguments.emplace_back("--no-check-for-nan-in-loss-and-grad");
}

}  // namespace

std::string plain_number(double value) { return fmt::format("{}", value); }

MegatronFlags megatron_flags(const types::OffloadChoice& choice) {
    MegatronFlags flags;
    if (choice.modules.empty()) return flags;
    const types::OffloadChoice defaults;
    flags.environment["NVTE_CPU_OFFLOAD_V1"] = "1";
    flags.arguments.emplace_back("--fine-grained-activation-offloading");
    flags.arguments.push_back("--offload-modules " + choice.modules.joined(" "));
    flags.arguments.push_back("--activation-offload-fraction " + plain_number(choice.fraction));
    if (choice.min_offloaded_tensor_size != defaults.min_offloaded_tensor_size)
        flags.arguments.push_back(fmt::format("--min-offloaded-tensor-size {}", choice.min_offloaded_tensor_size));
    if (choice.delta_bytes_across_pp_ranks != defaults.delta_bytes_across_pp_ranks)
        flags.arguments.push_back(
            fmt::format("--delta-offload-bytes-across-pp-ranks {}", choice.delta_bytes_across_pp_ranks));
    if (choice.max_inflight_offloads)
        flags.arguments.push_back(
            fmt::format("--fine-grained-offloading-max-inflight-offloads {}", *choice.max_inflight_offloads));
    if (choice.delay_until_cuda_graph) flags.arguments.emplace_back("--delay-offload-until-cuda-graph");
    return flags;
}

MegatronFlags megatron_flags(const types::Scenario& scenario, const types::OffloadChoice& choice) {
    MegatronFlags flags = megatron_flags(choice);
    add_graphs(flags, scenario.cuda_graph, scenario.rules);
    if (flags.arguments.empty()) return flags;
    for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "NCCL_GRAPH_REGISTER"})
        if (const auto given = scenario.env.find(name); given != scenario.env.end())
            flags.environment[name] = given->second;
    return flags;
}

}  // namespace stowage::reports
