#include "cli/execute_policy.hpp"

#include <fmt/format.h>

#include "cli/inputs.hpp"
#include "planner/program/choose_free.hpp"
#include "planner/search/free_pace.hpp"
#include "reports/document.hpp"

namespace stowage::cli {
namespace {

constexpr std::int64_t kMostGroups = 1'000'000;

constexpr const char* kOtherLayers = "found megatron, whose layers do not run here: what is executed are stowage's own";
constexpr const char* kOwnLayers =
    "set implementation: stowage; a measurement is held against a prediction of the same implementation only. "
    "'stowage execute --stand-ins' runs work of the same class, length and traffic in their place";

constexpr const char* kOverlapKey = "parallel.overlap_moe_expert_parallel_comm";
constexpr const char* kSideBySide = "found true, but stand-ins of chunks that run side by side are not executed";
constexpr const char* kOneByOne = "set it to false";

bool runs_here(const types::Scenario& scenario, const ExecutedPolicyOptions& options) {
    return options.stand_ins || scenario.implementation == types::Implementation::stowage;
}

bool overlaps(const types::Scenario& scenario, const ExecutedPolicyOptions& options) {
    return options.stand_ins && scenario.parallel.overlap_moe_expert_parallel_comm;
}

/// What is left to the planner is told where it matters: policy stowage chooses for itself, and none leaves all.
PolicyInput read_scenario(CommonOptions common, reader::LoadedScenario loaded, const ExecutedPolicyOptions& options) {
    common.quiet = common.quiet || (options.policy && options.policy != "megatron");
    if (!runs_here(loaded.scenario, options))
        throw types::InputError(loaded.where.describe("implementation", kOtherLayers, kOwnLayers));
    if (overlaps(loaded.scenario, options))
        throw types::InputError(loaded.where.describe(kOverlapKey, kSideBySide, kOneByOne));
    return own_policy(common, std::move(loaded));
}

PolicyInput read_plan(const std::string& path, const ExecutedPolicyOptions& options) {
    PolicyInput planned = planned_policy(path, "execute");
    if (overlaps(planned.scenario, options))
        throw types::InputError(fmt::format("{}: error: scenario.{}: {}\nhint: {} (in the scenario, and plan it again)",
                                            path, kOverlapKey, kSideBySide, kOneByOne));
    if (!runs_here(planned.scenario, options))
        throw types::InputError(path + ": error: scenario.implementation: " + kOtherLayers + "\nhint: " + kOwnLayers +
                                " (in the scenario, and plan it again)");
    return planned;
}

std::string default_policy(const types::OffloadChoice& choice) {
    if (choice.free) return "stowage";
    return choice.modules.empty() ? "none" : "megatron";
}

void refuse_options_of_another_policy(const std::string& policy, const ExecutedPolicyOptions& options) {
    if (policy == "stowage") return;
    const auto refuse = [&](bool given, const char* option) {
        if (given) throw CommandLineError(fmt::format("{} is of --policy stowage, found policy {}", option, policy));
    };
    refuse(options.offload_bytes.has_value(), "--offload-bytes");
    refuse(options.reload_ahead.has_value(), "--reload-ahead");
    refuse(options.join_after.has_value(), "--join-after");
}

types::ModuleSet all_modules() {
    types::ModuleSet modules;
    for (const auto& [module, name] : types::enum_names<types::Module>()) modules.insert(module);
    return modules;
}

/// Every rank's layers in one choice. `size`: bytes of one microbatch of a rank, or a fraction of them.
template <class Size>
types::FreeOffload choose(const search::Job& job, const types::OffloadChoice& choice, Size size) {
    types::FreeOffload free;
    for (const layers::StageLayers& stage : job.stages)
        program::add_layers(free, program::choose_free(stage, choice, size));
    return free;
}

types::FreeOffload choose(const CommonOptions& common, const search::Job& job, const types::OffloadChoice& choice,
                          const std::optional<std::string>& bytes) {
    if (!bytes) return choose(job, choice, choice.fraction);
    const types::Bytes wanted = parse_size("--offload-bytes", *bytes);
    for (const layers::StageLayers& stage : job.stages)
        if (const types::Bytes most = program::eligible_bytes(stage, choice); most < wanted)
            say(common, fmt::format("--offload-bytes: {} bytes of a microbatch can leave pipeline rank {}, all do",
                                    most.count, stage.pipeline_rank));
    return choose(job, choice, wanted);
}

}  // namespace

void ExecutedPolicyOptions::add_to(CLI::App& verb) {
    verb.add_option("--policy", policy,
                    "megatron: as Megatron's manager moves groups; stowage: any subset, fixed addresses; none")
        ->check(CLI::IsMember({"megatron", "stowage", "none"}))
        ->type_name("POLICY");
    verb.add_option("--offload-bytes", offload_bytes, "policy stowage: of one microbatch, as 1.3GB; default: all")
        ->type_name("SIZE");
    verb.add_option("--reload-ahead", reload_ahead,
                    "policy stowage: groups that a reload runs ahead; default: the fewest that are as "
                    "fast as any")
        ->check(CLI::Range(std::int64_t{1}, kMostGroups))
        ->type_name("N");
    verb.add_option("--join-after", join_after,
                    "policy stowage: commits after which a copy is waited for; default likewise")
        ->check(CLI::Range(std::int64_t{1}, kMostGroups))
        ->type_name("N");
}

ExecutedPolicy read_executed_policy(const CommonOptions& common, const std::string& input,
                                    const ExecutedPolicyOptions& options) {
    if (reports::looks_like_json(input)) return executed_policy(read_plan(input, options), options);
    return executed_policy(common, reader::load_scenario(input), options);
}

ExecutedPolicy executed_policy(const CommonOptions& common, reader::LoadedScenario loaded,
                               const ExecutedPolicyOptions& options) {
    return executed_policy(read_scenario(common, std::move(loaded), options), options);
}

ExecutedPolicy executed_policy(PolicyInput read, const ExecutedPolicyOptions& options) {
    const std::string name = options.policy.value_or(default_policy(read.choice));
    refuse_options_of_another_policy(name, options);
    if (name != "stowage") read.choice.free.reset();
    if (name == "none") read.choice.modules = {};
    types::OffloadChoice judged = read.choice;
    if (name == "stowage") judged.modules = {};  // which may leave alone is Megatron's business
    judged.free.reset();
    refuse_illegal(read.scenario, judged, "this policy");
    return {std::move(read.scenario), read.choice, name};
}

void choose_groups(const CommonOptions& common, const search::Job& job, const ExecutedPolicyOptions& options,
                   ExecutedPolicy& policy) {
    if (policy.name != "stowage") return;
    types::OffloadChoice& choice = policy.choice;
    const bool named = choice.free && !options.offload_bytes;
    if (!named) {
        const bool any = choice.modules.empty();
        if (any) choice.modules = all_modules();
        choice.free = choose(common, job, choice, options.offload_bytes);
        if (any) choice.modules = {};
        for (const types::ModuleSet modules : choice.free->by_layer)
            for (const types::Module module : modules.list()) choice.modules.insert(module);
    }
    if (options.reload_ahead) choice.free->reload_ahead = *options.reload_ahead;
    if (options.join_after) choice.free->join_after = *options.join_after;
    if (!named) choice = search::choose_pace(job, choice, {!options.join_after, !options.reload_ahead});
}

}  // namespace stowage::cli
