#include "scenarios/reader/scenario_reader.hpp"

#include <memory>
#include <utility>

#include "scenarios/reader/checks.hpp"
#include "scenarios/reader/drafts.hpp"
#include "scenarios/reader/read_fields.hpp"
#include "scenarios/reader/scalars.hpp"

namespace stowage::reader {

LoadedScenario finish_scenario(Gathered& gathered, ScenarioDraft& draft) {
    draft.scenario.model = complete(draft.model);
    complete_layout(draft);
    check_model(gathered, draft.model, draft.scenario.model, "model");
    check_scenario(gathered, draft);
    gathered.diagnostics.throw_if_any();
    return LoadedScenario{std::move(draft.scenario), std::move(gathered.where)};
}

LoadedScenario load_scenario(const std::filesystem::path& path) {
    Gathered gathered;
    ScenarioDraft draft;
    read_file(gathered, path.string(), kScenarioFile, "", nullptr,
              [&](Fields& fields) { describe_scenario(fields, draft); });
    draft.scenario.name = path.stem().string();
    return finish_scenario(gathered, draft);
}

types::Scenario read_scenario_text(const std::string& name, const std::string& text) {
    Gathered gathered;
    ScenarioDraft draft;
    const auto source = std::make_shared<const SourceFile>(name, text);
    gathered.diagnostics.open(name);
    const Value root = parse_document(source, gathered.diagnostics);
    gathered.where.set("", Location{source, root.at, {}});
    if (root.kind == Value::Kind::mapping) {
        ReadFields fields(gathered, source, root, "", "", false);
        describe_scenario(fields, draft);
        fields.finish();
    } else {
        gathered.failed.insert("");
        if (root.kind != Value::Kind::invalid)  // else it was reported while parsing
            gathered.diagnostics.add(Location{source, root.at, {}}, "found " + found(root) + ", expected a scenario");
    }
    return finish_scenario(gathered, draft).scenario;
}

types::Scenario read_scenario(const std::filesystem::path& path) { return load_scenario(path).scenario; }

types::Model read_model(const std::filesystem::path& path) {
    Gathered gathered;
    ModelDraft draft;
    read_file(gathered, path.string(), kModelFile, "", nullptr, [&](Fields& fields) { describe_model(fields, draft); });
    types::Model model = complete(draft);
    if (model.name.empty()) model.name = path.stem().string();
    check_model(gathered, draft, model, "");
    gathered.diagnostics.throw_if_any();
    return model;
}

types::Node read_hardware(const std::filesystem::path& path) {
    Gathered gathered;
    types::Node node;
    read_file(gathered, path.string(), kHardwareFile, "", nullptr,
              [&](Fields& fields) { describe_hardware(fields, node); });
    if (node.name.empty()) node.name = path.stem().string();
    gathered.diagnostics.throw_if_any();
    return node;
}

}  // namespace stowage::reader
