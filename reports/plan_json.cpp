#include "reports/plan_json.hpp"

#include "planner/layers/inventory.hpp"
#include "planner/search/candidates.hpp"
#include "planner/search/search.hpp"
#include "reports/duration_json.hpp"
#include "reports/inventory_json.hpp"
#include "reports/megatron_flags.hpp"
#include "reports/outcome_json.hpp"
#include "reports/scenario_json.hpp"
#include "reports/shortage_json.hpp"
#include "reports/version.hpp"

namespace stowage::reports {
namespace {

Json begin_document(const char* schema, const search::Job& job) {
    Json json;
    json["schema"] = schema;
    json["stowage_version"] = kVersion;
    json["scenario_name"] = job.scenario.name;
    json["implementation"] = std::string(types::name_of(job.scenario.implementation));
    json["rules"] = std::string(types::name_of(job.scenario.rules));
    return json;
}

Json limits_json(types::Bytes device, types::Bytes host) {
    return {{"device_memory_bytes", device.count}, {"host_memory_per_node_bytes", host.count}};
}

/// None of our own policy: no flag of Megatron's says which groups of which layers move.
MegatronFlags flags_of(const types::Scenario& scenario, const types::OffloadChoice& choice) {
    return choice.free ? MegatronFlags{} : megatron_flags(scenario, choice);
}

Json flags_json(const MegatronFlags& flags) {
    return {{"arguments", flags.arguments}, {"environment", Json(flags.environment)}};
}

Json floor_json(const search::Floor& floor) {
    Json json{{"compute_us", file_microseconds(floor.compute)},
              {"schedule_us", file_microseconds(floor.schedule)},
              {"device_to_host_us", file_microseconds(floor.device_to_host)},
              {"host_to_device_us", file_microseconds(floor.host_to_device)}};
    if (floor.beside_copies.count() > 0) json["beside_copies_us"] = file_microseconds(floor.beside_copies);
    return json;
}

Json certificate_json(const search::Plan& plan) {
    const search::Certificate& certificate = plan.certificate;
    return {{"lower_bound_us", file_microseconds(certificate.lower_bound)},
            {"gap", plan.chosen ? Json(certificate.gap) : Json(nullptr)},
            {"candidates", certificate.candidates},
            {"simulated", certificate.simulated},
            {"pruned", certificate.pruned},
            {"complete", certificate.complete}};
}

Json baselines_json(const search::Job& job, const search::Plan& plan) {
    Json list = Json::array();
    for (const search::Baseline& baseline : plan.baselines)
        list.push_back({{"name", baseline.name},
                        {"description", baseline.description},
                        {"choice", choice_json(baseline.outcome.choice)},
                        {"fits", baseline.fits},
                        {"predicted", predicted_json(job, baseline.outcome)}});
    return list;
}

Json rejections_json(const search::Plan& plan) {
    Json list = Json::array();
    for (const search::Rejection& rejection : plan.rejections) {
        Json modules = Json::array();
        for (const types::Module module : rejection.modules.list())
            modules.push_back(std::string(types::name_of(module)));
        list.push_back({{"offload_modules", modules},
                        {"rule", rejection.rule},
                        {"reason", rejection.reason},
                        {"nearest_legal", rejection.nearest_legal}});
    }
    return list;
}

Json model_summary_json(const types::Scenario& scenario) {
    return {{"parameters", layers::model_parameters(scenario)},
            {"flops_per_step", layers::model_flops_per_step(scenario)},
            {"gpus", scenario.parallel.world_size()},
            {"microbatches", scenario.microbatches()}};
}

void add_answer(Json& json, const search::Job& job, const search::Plan& plan) {
    json["choice"] = plan.chosen ? choice_json(plan.chosen->choice) : Json(nullptr);
    json["megatron_flags"] = flags_json(plan.chosen ? flags_of(job.scenario, plan.chosen->choice) : MegatronFlags{});
    json["predicted"] = plan.chosen ? predicted_json(job, *plan.chosen) : Json{{"step_time_us", nullptr}};
    json["predicted"]["lower_bound_us"] = file_microseconds(plan.certificate.lower_bound);
    json["ranks"] = plan.chosen ? ranks_json(job, *plan.chosen) : Json::array();
    if (plan.verdict != search::PlanVerdict::infeasible) return;
    json["limited_by"] = plan.limited_by;
    if (!plan.smallest) return;
    json["smallest"] = {{"choice", choice_json(plan.smallest->choice)},
                        {"predicted", predicted_json(job, *plan.smallest)},
                        {"ranks", ranks_json(job, *plan.smallest)}};
}

}  // namespace

Json plan_json(const search::Job& job, const search::Plan& plan) {
    Json json = begin_document(kPlanSchema, job);
    json["verdict"] = std::string(types::name_of(plan.verdict));
    add_answer(json, job, plan);
    json["limits"] = limits_json(plan.device_limit, plan.host_limit);
    json["certificate"] = certificate_json(plan);
    json["floor"] = floor_json(plan.floor);
    json["baselines"] = baselines_json(job, plan);
    json["rejections"] = rejections_json(plan);
    json["notes"] = plan.notes;
    add_durations(json, job, plan.chosen ? &*plan.chosen : nullptr);
    json["job"] = model_summary_json(job.scenario);
    json["tensor_groups"] = tensor_groups_json(job);
    json["scenario"] = scenario_json(job.scenario);
    return json;
}

Json simulation_json(const search::Job& job, const search::Outcome& outcome,
                     const std::optional<search::Outcome>& at_limit, const std::optional<search::Floor>& floor) {
    Json json = begin_document(kSimulationSchema, job);
    json["choice"] = choice_json(outcome.choice);
    json["megatron_flags"] = flags_json(flags_of(job.scenario, outcome.choice));
    json["predicted"] = predicted_json(job, outcome);
    if (floor) {
        json["predicted"]["floor_us"] = file_microseconds(floor->step());
        json["floor"] = floor_json(*floor);
    }
    json["fits"] = search::fits(job, outcome);
    if (at_limit) json["at_device_limit"] = at_limit_json(*at_limit);
    json["ranks"] = ranks_json(job, outcome);
    json["limits"] = limits_json(job.scenario.device_memory_limit(), job.scenario.host_memory_limit());
    json["notes"] = search::filtered_modules(job, outcome.choice.modules);
    add_durations(json, job, &outcome);
    json["job"] = model_summary_json(job.scenario);
    json["scenario"] = scenario_json(job.scenario);
    return json;
}

}  // namespace stowage::reports
