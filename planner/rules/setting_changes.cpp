#include "planner/rules/setting_changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace stowage::rules {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::Precision;
using types::RecomputeGranularity;
using types::RecomputeModule;

/// Gathers changes of one configuration.
class Changes {
public:
    explicit Changes(const Configuration& given) : given_(given) {}

    void when(bool useful, std::string words, const std::function<void(Configuration&)>& change) {
        if (!useful) return;
        changes_.push_back({std::move(words), given_});
        change(changes_.back().configuration);
    }
    std::vector<ChangedConfiguration> take() { return std::move(changes_); }

private:
    const Configuration& given_;
    std::vector<ChangedConfiguration> changes_;
};

template <class Item>
bool has(const std::vector<Item>& items, Item item) {
    return std::find(items.begin(), items.end(), item) != items.end();
}

void change_values(const Configuration& given, Changes& changes) {
    const types::OffloadChoice& choice = given.choice;
    changes.when(choice.fraction < 0 || choice.fraction > 1,
                 fmt::format("set activation_offload_fraction to {}", choice.fraction < 0 ? 0 : 1),
                 [](Configuration& c) { c.choice.fraction = std::clamp(c.choice.fraction, 0.0, 1.0); });
    changes.when(choice.fraction < 1, "set activation_offload_fraction to 1",
                 [](Configuration& c) { c.choice.fraction = 1; });
    changes.when(choice.min_offloaded_tensor_size < 0, "set min_offloaded_tensor_size to 0",
                 [](Configuration& c) { c.choice.min_offloaded_tensor_size = 0; });
    changes.when(choice.delta_bytes_across_pp_ranks != 0, "set delta_offload_bytes_across_pp_ranks to 0",
                 [](Configuration& c) { c.choice.delta_bytes_across_pp_ranks = 0; });
    const auto set_cap = [](std::optional<std::int64_t> cap) {
        return [cap](Configuration& c) {
            c.choice.max_inflight_offloads = cap;
            c.scenario.offload.fine_grained_offloading_max_inflight_offloads = cap;
        };
    };
    const bool iteration = given.scenario.cuda_graph.cuda_graph_impl == CudaGraphImpl::full_iteration;
    changes.when(choice.max_inflight_offloads.value_or(-1) < 0 && iteration,
                 "set fine_grained_offloading_max_inflight_offloads to 1", set_cap(1));
    changes.when(choice.max_inflight_offloads && !iteration,
                 "set fine_grained_offloading_max_inflight_offloads to null", set_cap(std::nullopt));
    changes.when(choice.delay_until_cuda_graph, "set delay_offload_until_cuda_graph to false", [](Configuration& c) {
        c.choice.delay_until_cuda_graph = false;
        c.scenario.offload.delay_offload_until_cuda_graph = false;
    });
    changes.when(given.scenario.cuda_graph.cuda_graph_warmup_steps < 1, "set cuda_graph_warmup_steps to 3",
                 [](Configuration& c) { c.scenario.cuda_graph.cuda_graph_warmup_steps = 3; });
}

void change_environment(const Configuration& given, Changes& changes) {
    const auto set = [&](const char* name, const char* value) {
        const auto found = given.scenario.env.find(name);
        changes.when(!given.scenario.env.empty() && (found == given.scenario.env.end() || found->second != value),
                     fmt::format("set {} to {} in env", name, value),
                     [&](Configuration& c) { c.scenario.env[name] = value; });
    };
    set("NVTE_CPU_OFFLOAD_V1", "1");
    set("NCCL_GRAPH_REGISTER", "0");
    set("TORCH_NCCL_AVOID_RECORD_STREAMS", "0");
}

void change_offloaded(const Configuration& given, Changes& changes) {
    const types::ModuleSet modules = given.choice.modules;
    changes.when(modules.contains(Module::attn_proj) && !modules.contains(Module::core_attn),
                 "add core_attn to offload_modules",
                 [](Configuration& c) { c.choice.modules.insert(Module::core_attn); });
    for (const Module module : modules.list())
        changes.when(true, fmt::format("drop {} from offload_modules", types::name_of(module)),
                     [&](Configuration& c) { c.choice.modules.erase(module); });
}

void change_captured(const Configuration& given, Changes& changes) {
    const std::vector<CudaGraphModule>& listed = given.scenario.cuda_graph.cuda_graph_modules;
    const CudaGraphImpl impl = given.scenario.cuda_graph.cuda_graph_impl;
    const auto add = [&](CudaGraphModule module) {
        return [module](Configuration& c) { c.scenario.cuda_graph.cuda_graph_modules.push_back(module); };
    };
    const auto drop = [&](CudaGraphModule module) {
        return [module](Configuration& c) { std::erase(c.scenario.cuda_graph.cuda_graph_modules, module); };
    };
    const bool by_layer = impl == CudaGraphImpl::local || impl == CudaGraphImpl::transformer_engine;
    const bool router = has(listed, CudaGraphModule::moe_router);
    changes.when(by_layer && has(listed, CudaGraphModule::moe_preprocess) && !router,
                 "add moe_router to cuda_graph_modules", add(CudaGraphModule::moe_router));
    changes.when(by_layer && has(listed, CudaGraphModule::moe) && !router,
                 "list moe_router instead of moe in cuda_graph_modules", [](Configuration& c) {
                     auto& modules = c.scenario.cuda_graph.cuda_graph_modules;
                     std::replace(modules.begin(), modules.end(), CudaGraphModule::moe, CudaGraphModule::moe_router);
                 });
    changes.when(by_layer && listed.empty(), "list attn in cuda_graph_modules", add(CudaGraphModule::attn));
    changes.when(!by_layer && !listed.empty(), "leave cuda_graph_modules empty",
                 [](Configuration& c) { c.scenario.cuda_graph.cuda_graph_modules.clear(); });
    for (const CudaGraphModule module : listed)  // the empty list would be the whole layer
        changes.when(listed.size() > 1, fmt::format("drop {} from cuda_graph_modules", types::name_of(module)),
                     drop(module));
}

void change_layout(const Configuration& given, Changes& changes) {
    const types::ParallelLayout& parallel = given.scenario.parallel;
    changes.when(parallel.delay_wgrad_compute, "set delay_wgrad_compute to false",
                 [](Configuration& c) { c.scenario.parallel.delay_wgrad_compute = false; });
    changes.when(parallel.moe_shared_expert_overlap, "set moe_shared_expert_overlap to false",
                 [](Configuration& c) { c.scenario.parallel.moe_shared_expert_overlap = false; });
    changes.when(parallel.moe_token_dispatcher_type == types::TokenDispatcher::allgather,
                 "set moe_token_dispatcher_type to alltoall", [](Configuration& c) {
                     c.scenario.parallel.moe_token_dispatcher_type = types::TokenDispatcher::alltoall;
                 });
    changes.when(parallel.overlap_moe_expert_parallel_comm, "set overlap_moe_expert_parallel_comm to false",
                 [](Configuration& c) { c.scenario.parallel.overlap_moe_expert_parallel_comm = false; });
    changes.when(!given.scenario.optimizer.gradient_accumulation_fusion, "set gradient_accumulation_fusion to true",
                 [](Configuration& c) { c.scenario.optimizer.gradient_accumulation_fusion = true; });
}

void change_model(const Configuration& given, Changes& changes) {
    const types::Model& model = given.scenario.model;
    changes.when(model.moe_expert_capacity_factor && !model.moe_pad_expert_input_to_capacity,
                 "set moe_pad_expert_input_to_capacity to true",
                 [](Configuration& c) { c.scenario.model.moe_pad_expert_input_to_capacity = true; });
    changes.when(model.attention_dropout != 0, "set attention_dropout to 0",
                 [](Configuration& c) { c.scenario.model.attention_dropout = 0; });
    changes.when(model.hidden_dropout != 0, "set hidden_dropout to 0",
                 [](Configuration& c) { c.scenario.model.hidden_dropout = 0; });
    changes.when(given.scenario.precision == Precision::fp8_delayed, "set precision to fp8_tensorwise",
                 [](Configuration& c) { c.scenario.precision = Precision::fp8_tensorwise; });
    changes.when(given.scenario.precision == Precision::fp32, "set precision to bf16",
                 [](Configuration& c) { c.scenario.precision = Precision::bf16; });
    changes.when(model.mtp_num_layers > 1, "set mtp_num_layers to 1",
                 [](Configuration& c) { c.scenario.model.mtp_num_layers = 1; });
}

void change_recomputed(const Configuration& given, Changes& changes) {
    const types::Recompute& recompute = given.scenario.recompute;
    for (const RecomputeModule module : recompute.recompute_modules)
        changes.when(recompute.selects(module), fmt::format("drop {} from recompute_modules", types::name_of(module)),
                     [&](Configuration& c) { std::erase(c.scenario.recompute.recompute_modules, module); });
    const bool any = recompute.recompute_granularity != RecomputeGranularity::none ||
                     recompute.recompute_method != types::RecomputeMethod::none || recompute.recompute_num_layers;
    changes.when(any, "leave recompute out", [](Configuration& c) { c.scenario.recompute = {}; });
}

void change_implementation(const Configuration& given, Changes& changes) {
    const CudaGraphImpl impl = given.scenario.cuda_graph.cuda_graph_impl;
    const auto set = [](CudaGraphImpl other) {
        return [other](Configuration& c) { c.scenario.cuda_graph.cuda_graph_impl = other; };
    };
    for (const CudaGraphImpl other : {CudaGraphImpl::transformer_engine, CudaGraphImpl::full_iteration})
        changes.when(impl != CudaGraphImpl::none && impl != other,
                     fmt::format("set cuda_graph_impl to {}", types::name_of(other)), set(other));
    changes.when(impl != CudaGraphImpl::none, "leave cuda_graph out",
                 [](Configuration& c) { c.scenario.cuda_graph = {}; });
    changes.when(!given.choice.modules.empty(), "offload nothing", [](Configuration& c) { c.choice.modules = {}; });
}

}  // namespace

std::vector<ChangedConfiguration> changes_of(const Configuration& given) {
    Changes changes(given);
    change_values(given, changes);
    change_environment(given, changes);
    change_offloaded(given, changes);
    change_captured(given, changes);
    change_recomputed(given, changes);
    change_layout(given, changes);
    change_model(given, changes);
    change_implementation(given, changes);
    return changes.take();
}

}  // namespace stowage::rules
