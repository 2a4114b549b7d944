#include "cli/inputs.hpp"

#include "cli/verb.hpp"
#include "planner/layers/support.hpp"
#include "planner/rules/legality.hpp"
#include "planner/search/allocator_environment.hpp"
#include "scenarios/reader/scalars.hpp"

namespace stowage::cli {
namespace {

std::string rule_set_names() {
    std::string names;
    for (const auto& [rules, name] : types::enum_names<types::RuleSet>())
        names += (names.empty() ? "" : ", ") + std::string(name);
    return names;
}

/// Read as the scenario language reads it.
reader::ScalarValue parse(const std::string& name, const std::string& text, const reader::ScalarKind& kind) {
    reader::Value value;
    value.kind = reader::Value::Kind::scalar;
    value.text = text;
    const reader::ReadScalar read = reader::read_scalar(value, kind);
    if (read.value) return *read.value;
    throw CommandLineError(name + ": " + read.message + (read.hint.empty() ? "" : "\nhint: " + read.hint));
}

[[noreturn]] void refuse(const rules::Finding& finding, const std::string& what) {
    throw types::Error(types::ExitCode::no, what + ": " + finding.message + " (" + std::string(finding.rule) +
                                                ")\nhint: " + finding.nearest_legal);
}

}  // namespace

types::Bytes parse_size(const std::string& name, const std::string& text) {
    return std::get<types::Bytes>(parse(name, text, reader::ScalarKind{reader::SizeRange{}}));
}

double parse_seconds(const std::string& name, const std::string& text) {
    return std::get<double>(parse(name, text, reader::ScalarKind{reader::NumberRange{}}));
}

void Overrides::apply(types::Scenario& scenario) const {
    if (device_memory) scenario.limits.device_memory = parse_size("--device-memory", *device_memory);
    if (host_memory) scenario.limits.host_memory_per_node = parse_size("--host-memory", *host_memory);
    if (!rules) return;
    const auto named = types::parse_name<types::RuleSet>(*rules);
    if (!named) throw CommandLineError("--rules: found '" + *rules + "', expected one of " + rule_set_names());
    scenario.rules = *named;
}

void refuse_illegal(const types::Scenario& scenario, const types::OffloadChoice& choice, const std::string& what) {
    for (const rules::Finding& finding : rules::check(scenario, choice))
        if (finding.severity == rules::Severity::illegal) refuse(finding, "Megatron refuses " + what);
}

void refuse_job(const types::Scenario& scenario) {
    refuse_illegal(scenario, {}, "this job, whatever it offloads");
    for (const rules::Finding& finding : rules::check(scenario, {}))
        if (finding.severity == rules::Severity::hazard) refuse(finding, "this job is a known hazard");
}

void require_plannable(const reader::LoadedScenario& loaded) {
    std::string text;
    for (const layers::Unsupported& unsupported : layers::unsupported_features(loaded.scenario)) {
        if (!text.empty()) text += '\n';
        text += loaded.where.describe(unsupported.path, "this version cannot plan " + unsupported.feature,
                                      unsupported.hint);
    }
    const auto allocator = search::allocator_environment(loaded.scenario);
    if (const auto* wrong = std::get_if<layers::Unsupported>(&allocator))
        text += (text.empty() ? "" : "\n") + loaded.where.describe(wrong->path, wrong->feature, wrong->hint);
    if (!text.empty()) throw types::InputError(text);
}

}  // namespace stowage::cli
