#include <filesystem>
#include <memory>

#include "cli/hardware_choice.hpp"
#include "cli/outputs.hpp"
#include "cli/verb.hpp"
#include "reports/json.hpp"
#include "reports/output_file.hpp"
#include "scenarios/reader/hugging_face.hpp"
#include "scenarios/reader/megatron_arguments.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/reader/scenario_yaml.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::cli {
namespace {

struct ImportOptions {
    CommonOptions common;
    std::string what;
    std::string source;
    std::string out;
    HardwareOptions hardware;
};

/// What Megatron rejects cannot be a scenario; what it changes is worth a note.
void settle_findings(reader::ImportedScenario& imported) {
    std::string text;
    for (const reader::ArgumentFinding& finding : imported.findings) {
        const std::string message = finding.message + " (" + finding.rule + ")";
        if (finding.illegal)
            text += (text.empty() ? "" : "\n") + reader::format_error(finding.at, message, finding.nearest_legal);
        else
            imported.notes.push_back(reader::format_note(finding.at, message));
    }
    if (!text.empty()) throw types::InputError(text);
}

std::vector<std::string> head_remark(const ImportOptions& options, const reader::ImportedScenario& imported) {
    const std::string name = std::filesystem::path(options.source).filename().string();
    std::vector<std::string> lines;
    if (options.what == "megatron") {
        lines.push_back("Imported from the Megatron-LM arguments " + reader::excerpt(name) + ".");
        lines.emplace_back("Left out: what is as the scenario language has it by default.");
    } else {
        lines.push_back("Imported from the Hugging Face configuration " + reader::excerpt(name) + ".");
        lines.emplace_back("Only the model comes from there: layout, batch, optimizer and hardware are to be edited.");
    }
    for (const std::string& note : imported.notes)
        lines.push_back("Note: " +
                        (note.starts_with(options.source) ? name + note.substr(options.source.size()) : note));
    return lines;
}

/// The text must say what was imported, or it is not written.
void check_text(const std::string& path, const std::string& text, const types::Scenario& imported) {
    const types::Scenario read = reader::read_scenario_text(path, text);
    STOWAGE_CHECK(read.model == imported.model && read.parallel == imported.parallel && read.batch == imported.batch &&
                      read.optimizer == imported.optimizer && read.recompute == imported.recompute &&
                      read.cuda_graph == imported.cuda_graph && read.offload == imported.offload &&
                      read.precision == imported.precision && read.env == imported.env &&
                      read.hardware.gpus() == imported.hardware.gpus(),
                  "the scenario file that was made reads back as another scenario");
}

types::ExitCode run_import(const ImportOptions& options) {
    refuse_to_replace(options.source, "--out", options.out);
    const std::filesystem::path folder = std::filesystem::path(options.out).parent_path();
    const reader::ImportedHardware hardware = options.hardware.choose(folder);
    reader::ImportedScenario imported = options.what == "megatron"
                                            ? reader::import_megatron(options.source, hardware)
                                            : reader::import_hugging_face(options.source, hardware);
    settle_findings(imported);
    reader::ScenarioFile file;
    file.hardware = as_seen_from(folder, hardware.node);
    file.part_of_a_node = imported.part_of_a_node;
    file.remark = head_remark(options, imported);
    const std::string text = reader::scenario_yaml(imported.scenario, file);
    check_text(options.out, text, imported.scenario);
    reports::write_file(options.out, text);
    for (const std::string& note : imported.notes) say(options.common, note);
    say(options.common, "wrote " + options.out);
    if (options.common.json)
        print(reports::to_text(
            reports::Json{{"schema", "stowage/import/1"}, {"scenario", options.out}, {"notes", imported.notes}}));
    return types::ExitCode::yes;
}

}  // namespace

void add_import_command(CLI::App& app, Run& chosen) {
    const auto options = std::make_shared<ImportOptions>();
    CLI::App* const verb =
        add_verb(app, "import", "Makes a scenario of Megatron-LM's arguments or of a Hugging Face config.json.",
                 "stowage import megatron args.yaml --world-size 64 --out scenario.yaml", options->common);
    verb->add_option("WHAT", options->what, "megatron or hf")->required()->check(CLI::IsMember({"megatron", "hf"}));
    verb->add_option("FILE", options->source, "arguments as a YAML map, or config.json")->required();
    verb->add_option("--out", options->out, "the scenario file to write")->required()->type_name("FILE");
    options->hardware.add_to(*verb);
    verb->callback([options, &chosen] { chosen = [options] { return run_import(*options); }; });
}

}  // namespace stowage::cli
