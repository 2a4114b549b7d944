#include <memory>
#include <nlohmann/json.hpp>

#include "cli/verb.hpp"
#include "scenarios/reader/scenario_schema.hpp"

namespace stowage::cli {
namespace {

struct SchemaOptions {
    CommonOptions common;
    std::string kind = "scenario";
};

types::ExitCode run_schema(const SchemaOptions& options) {
    const nlohmann::json schema = options.kind == "model"      ? reader::model_schema()
                                  : options.kind == "hardware" ? reader::hardware_schema()
                                                               : reader::scenario_schema();
    print(schema.dump(2) + "\n");
    return types::ExitCode::yes;
}

}  // namespace

void add_schema_command(CLI::App& app, Run& chosen) {
    const auto options = std::make_shared<SchemaOptions>();
    CLI::App* const verb = add_verb(app, "schema", "Prints the JSON Schema of a kind of file, for editors.",
                                    "stowage schema > scenario.schema.json", options->common);
    verb->add_option("KIND", options->kind, "scenario (the default), model or hardware")
        ->check(CLI::IsMember({"scenario", "model", "hardware"}));
    verb->callback([options, &chosen] { chosen = [options] { return run_schema(*options); }; });
}

}  // namespace stowage::cli
