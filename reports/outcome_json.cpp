#include "reports/outcome_json.hpp"

#include <cmath>

#include "planner/layers/inventory.hpp"

namespace stowage::reports {
namespace {

std::int64_t ranks_per_stage(const search::Job& job) {
    const types::ParallelLayout& layout = job.scenario.parallel;
    return layout.world_size() / layout.pipeline_model_parallel_size;
}

std::int64_t number(types::Bytes bytes) { return bytes.count; }
std::int64_t number(std::int64_t count) { return count; }

/// Of the chosen modules, and of any other that moved something.
template <class Value>
Json by_module(const std::array<Value, types::kModuleCount>& values, types::ModuleSet chosen) {
    Json json = Json::object();
    for (const auto& [module, name] : types::enum_names<types::Module>()) {
        const std::int64_t value = number(values[static_cast<std::size_t>(module)]);
        if (chosen.contains(module) || value > 0) json[std::string(name)] = value;
    }
    return json;
}

Json peaks_json(types::Bytes allocated, types::Bytes reserved) {
    return {{"peak_allocated_bytes", allocated.count}, {"peak_reserved_bytes", reserved.count}};
}

/// Peaks of the stages that only a run with graphs has, and what graphs take.
void add_graphs(Json& json, const search::RankOutcome& rank) {
    if (rank.graphs == 0) return;
    // With one warm-up iteration the capture follows the first one.
    if (rank.eager_peak_reserved > types::Bytes{0})
        json["eager_iterations"] = peaks_json(rank.eager_peak_allocated, rank.eager_peak_reserved);
    json["capture"] = peaks_json(rank.capture_peak_allocated, rank.capture_peak_reserved);
    json["graphs"] = {{"captured", rank.graphs},
                      {"launches_per_step", rank.graph_launches},
                      {"static_input_sets", rank.graph_inputs},
                      {"static_input_sets_without_reuse", rank.graph_inputs_without_reuse},
                      {"private_pools_bytes", rank.private_pools.count},
                      {"executable_bytes", rank.executable_graphs.count}};
}

Json rank_json(const search::RankOutcome& rank, std::int64_t per_stage, types::ModuleSet chosen) {
    Json json;
    json["rank"] = rank.pipeline_rank * per_stage;
    json["pipeline_rank"] = rank.pipeline_rank;
    json["stands_for_ranks"] = per_stage;
    json["layers"] = rank.layers;
    json["static_bytes"] = rank.static_bytes.count;
    json["peak_allocated_bytes"] = rank.peak_allocated().count;
    json["peak_reserved_bytes"] = rank.peak_reserved().count;
    json["peak_device_bytes"] = rank.peak_device().count;
    json["first_iteration"] = peaks_json(rank.record_peak_allocated, rank.record_peak_reserved);
    json["later_iterations"] = peaks_json(rank.steady_peak_allocated, rank.steady_peak_reserved);
    add_graphs(json, rank);
    json["pinned_host_bytes"] = rank.pinned_host.count;
    json["pinned_arena_bytes"] = rank.pinned_arena.count;
    json["offloaded_bytes"] = by_module(rank.offloaded.bytes, chosen);
    json["offloaded_groups"] = by_module(rank.offloaded.groups, chosen);
    json["eligible_groups"] = rank.offloaded.eligible_groups;
    json["megatron_summary_bytes"] = by_module(rank.offloaded.table, chosen);
    json["step_time_us"] = file_microseconds(rank.step_time);
    // Four digits: settled to so many, and the same on every machine.
    if (rank.duty < 1) json["rates_of_duty"] = std::round(rank.duty * 1e4) / 1e4;
    json["main_stream_busy_us"] = file_microseconds(rank.compute);
    json["exposed_copy_us"] = file_microseconds(rank.exposed_copy);
    json["device_to_host_busy_us"] = file_microseconds(rank.device_to_host_busy);
    json["host_to_device_busy_us"] = file_microseconds(rank.host_to_device_busy);
    json["operations"] = rank.operations;
    return json;
}

double tflop_per_s_per_gpu(const search::Job& job, const search::Outcome& outcome) {
    const double flops = layers::model_flops_per_step(job.scenario);
    const double gpus = static_cast<double>(job.scenario.parallel.world_size());
    const double nanoseconds = static_cast<double>(outcome.step_time.count());
    return nanoseconds > 0 ? flops / gpus / nanoseconds / 1e3 : 0;
}

Json modules_json(types::ModuleSet modules) {
    Json names = Json::array();
    for (const types::Module module : modules.list()) names.push_back(std::string(types::name_of(module)));
    return names;
}

Json free_json(const types::FreeOffload& free) {
    Json layers = Json::array();
    for (const types::ModuleSet modules : free.by_layer) layers.push_back(modules_json(modules));
    return {{"by_layer", layers}, {"reload_ahead", free.reload_ahead}, {"join_after", free.join_after}};
}

}  // namespace

Json choice_json(const types::OffloadChoice& choice) {
    Json json{{"offload_modules", modules_json(choice.modules)},
              {"activation_offload_fraction", choice.fraction},
              {"min_offloaded_tensor_size", choice.min_offloaded_tensor_size},
              {"delta_offload_bytes_across_pp_ranks", choice.delta_bytes_across_pp_ranks},
              {"fine_grained_offloading_max_inflight_offloads",
               choice.max_inflight_offloads ? Json(*choice.max_inflight_offloads) : Json()},
              {"delay_offload_until_cuda_graph", choice.delay_until_cuda_graph}};
    if (choice.free) json["free"] = free_json(*choice.free);
    return json;
}

std::string stop_reason(const search::Outcome& outcome) {
    if (outcome.chunk_mismatch) return "Megatron stops in the second iteration: chunk mismatch (H3)";
    if (outcome.released_while_saved)
        return "Megatron fails in the backward: an offloaded group empties a tensor that a kept one still needs";
    if (outcome.released_static)
        return "Megatron fails in the first step that replays graphs: an offloaded group empties a tensor that lies in "
               "a "
               "graph's own memory (H4)";
    return {};
}

Json predicted_json(const search::Job& job, const search::Outcome& outcome) {
    if (!outcome.runs() || outcome.ranks.empty())
        return {{"step_time_us", nullptr}, {"stops_with", stop_reason(outcome)}};
    Json json{{"step_time_us", file_microseconds(outcome.step_time)},
              {"first_iteration_us", file_microseconds(outcome.record_time)},
              {"tflop_per_s_per_gpu", tflop_per_s_per_gpu(job, outcome)},
              {"peak_reserved_bytes", outcome.fullest_rank().peak_reserved().count},
              {"peak_device_bytes", outcome.fullest_rank().peak_device().count},
              {"pinned_host_bytes_per_node", search::pinned_on_fullest_node(job, outcome).count},
              {"pinned_arena_bytes_per_node", search::pinned_arenas_on_fullest_node(job, outcome).count}};
    if (outcome.capture_time.count() > 0) {
        if (outcome.eager_time.count() > 0) json["eager_iteration_us"] = file_microseconds(outcome.eager_time);
        json["capture_us"] = file_microseconds(outcome.capture_time);
    }
    return json;
}

Json ranks_json(const search::Job& job, const search::Outcome& outcome) {
    Json list = Json::array();
    if (!outcome.runs()) return list;
    for (const search::RankOutcome& rank : outcome.ranks)
        list.push_back(rank_json(rank, ranks_per_stage(job), outcome.choice.modules));
    return list;
}

}  // namespace stowage::reports
