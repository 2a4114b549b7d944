#include <memory>

#include "cli/outputs.hpp"
#include "cli/verb.hpp"
#include "reports/document.hpp"
#include "reports/measurement_report.hpp"
#include "reports/megatron_table.hpp"
#include "reports/output_file.hpp"
#include "reports/plan_json.hpp"
#include "reports/plan_text.hpp"
#include "reports/rank_csv.hpp"

namespace stowage::cli {
namespace {

struct ReportOptions {
    CommonOptions common;
    std::string plan;
    std::vector<std::string> measurements;
    std::string format = "text";
    std::optional<std::string> out;
};

std::string render_measured(const ReportOptions& options, const std::string& format, const reports::Json& plan) {
    std::vector<reports::MeasuredFile> measurements;
    for (const std::string& file : options.measurements)
        measurements.push_back(reports::measurement_beside(plan, file));
    if (format == "csv") return reports::measured_csv(measurements);
    if (format == "text") return reports::plan_text(plan) + reports::measured_section(measurements);
    reports::Json both{{"plan", plan}, {"measurements", reports::Json::array()}};
    for (reports::MeasuredFile& measured : measurements) both["measurements"].push_back(std::move(measured.document));
    return reports::to_text(both);
}

std::string render(const ReportOptions& options) {
    const std::string format = options.common.json ? "json" : options.format;
    const reports::Json plan = reports::read_document(options.plan, reports::kPlanSchema);
    return reports::reading(options.plan, [&] {
        if (!options.measurements.empty()) return render_measured(options, format, plan);
        if (format == "csv") return reports::rank_csv(plan);
        if (format == "json") return reports::to_text(plan);
        if (format == "megatron-table") return reports::megatron_tables(plan);
        return reports::plan_text(plan);
    });
}

types::ExitCode run_report(const ReportOptions& options) {
    if (options.format == "html")
        throw CommandLineError("--format html is not in this version; text, csv, json and megatron-table are");
    if (!options.measurements.empty() && options.format == "megatron-table" && !options.common.json)
        throw CommandLineError("--format megatron-table is of a plan alone");
    if (options.out) {
        refuse_to_replace(options.plan, "--out", *options.out);
        for (const std::string& measurement : options.measurements)
            refuse_to_replace(measurement, "--out", *options.out);
    }
    const std::string text = render(options);
    if (options.out) {
        reports::write_file(*options.out, text);
        say(options.common, "wrote the report to " + *options.out);
    } else {
        print(text);
    }
    return types::ExitCode::yes;
}

}  // namespace

void add_report_command(CLI::App& app, Run& chosen) {
    const auto options = std::make_shared<ReportOptions>();
    CLI::App* const verb = add_verb(
        app, "report", "Shows a plan file, measurements beside it: for a terminal, or a table to compute with.",
        "stowage report plan.json --format csv --out ranks.csv", options->common);
    verb->add_option("PLAN", options->plan, "plan that 'stowage plan' wrote (JSON)")->required();
    verb->add_option("MEASUREMENT", options->measurements,
                     "measurements that 'stowage execute' wrote of the plan's job (JSON)");
    verb->add_option("--format", options->format,
                     "text (the default), csv, json, or megatron-table: Megatron-LM's own summary")
        ->check(CLI::IsMember({"text", "csv", "json", "html", "megatron-table"}))
        ->type_name("FORMAT");
    verb->add_option("--out", options->out, "write it here instead of to standard output")->type_name("FILE");
    verb->callback([options, &chosen] { chosen = [options] { return run_report(*options); }; });
}

}  // namespace stowage::cli
