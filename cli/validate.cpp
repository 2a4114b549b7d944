#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>

#include "cli/inputs.hpp"
#include "cli/outputs.hpp"
#include "cli/validate_memory.hpp"
#include "cli/validation_compare.hpp"
#include "cli/validation_run.hpp"
#include "reports/measurement_reader.hpp"
#include "reports/output_file.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::cli {
namespace {

constexpr std::int64_t kMostSteps = 100'000;
constexpr std::int64_t kMost = 1'000'000;

struct ValidateOptions {
    CommonOptions common;
    MemoryTableOptions table;
    std::vector<std::string> inputs;
    bool run = false;
    bool no_recording = false;
    ValidationRunOptions running;
    std::optional<std::string> shard;
    std::optional<std::string> time_limit;
    std::optional<std::string> only;
    std::optional<std::string> hardware;
    std::optional<std::string> report;
    std::string date;
    std::vector<std::string> bars;
    reader::RunSettings settings;
    std::optional<std::string> offload_bytes;
};

/// `2/5`: the second of five parts.
struct Shard {
    std::int64_t number = 1;
    std::int64_t of = 1;
};

Shard parse_shard(const std::string& text) {
    Shard shard;
    const char* const end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, shard.number);
    const bool slash = first.ec == std::errc{} && first.ptr != end && *first.ptr == '/';
    const auto second = slash ? std::from_chars(first.ptr + 1, end, shard.of) : first;
    const bool read = slash && second.ec == std::errc{} && second.ptr == end;
    if (!read || shard.of < 1 || shard.number < 1 || shard.number > shard.of)
        throw CommandLineError(fmt::format("--shard: found '{}', expected i/n with i from 1 to n", text));
    return shard;
}

/// Slices go to the parts in turn, so that all configurations of one are in the same.
std::vector<ValidationItem> part_of(std::vector<ValidationItem> items, const Shard& shard) {
    std::vector<std::string> slices;
    std::vector<ValidationItem> part;
    for (ValidationItem& item : items) {
        const std::string slice = slice_of(item.scenario());
        auto at = std::find(slices.begin(), slices.end(), slice);
        if (at == slices.end()) at = slices.insert(at, slice);
        if ((at - slices.begin()) % shard.of == shard.number - 1) part.push_back(std::move(item));
    }
    return part;
}

std::vector<reports::Bar> bars_of(const ValidateOptions& options, const std::vector<std::string>& of_files) {
    std::vector<reports::Bar> bars;
    const auto add = [&](const std::string& text, bool in_file) {
        const auto bar = reports::parse_bar(text);
        const std::string expected =
            fmt::format("found '{}', expected as in hardware.step_time_us.mean=0.05 or recording.pairs.wrong=0", text);
        if (!bar && in_file) throw types::InputError("bars: error: " + expected);
        if (!bar) throw CommandLineError("--bar: " + expected);
        bars.push_back(*bar);
    };
    for (const std::string& text : of_files) add(text, true);
    for (const std::string& text : options.bars) add(text, false);
    return bars;
}

void refuse_combinations(const ValidateOptions& options) {
    if (!options.table.table.empty() && (options.run || !options.inputs.empty()))
        throw CommandLineError("validate: --megatron-memory reads a table of its own and takes no scenarios");
    if (options.table.table.empty() && options.inputs.empty())
        throw CommandLineError(
            "validate: found neither SCENARIO, folder nor measurement to validate, nor --megatron-memory TABLE");
    const auto of_run = [&](bool given, const char* option) {
        if (given && !options.run) throw CommandLineError(std::string(option) + " is of --run");
    };
    of_run(options.time_limit.has_value(), "--time-limit");
    of_run(options.running.gemm_table.has_value(), "--gemm-table");
    of_run(options.no_recording, "--no-recording");
}

ValidationInputs read_inputs(const ValidateOptions& options) {
    reader::RunSettings settings = options.settings;
    if (options.offload_bytes) settings.offload_bytes = parse_size("--offload-bytes", *options.offload_bytes);
    ValidationInputs inputs = read_validation_inputs(options.inputs, settings);
    if (options.only)
        std::erase_if(inputs.items,
                      [&](const ValidationItem& item) { return item.name.find(*options.only) == std::string::npos; });
    if (options.shard) inputs.items = part_of(std::move(inputs.items), parse_shard(*options.shard));
    return inputs;
}

/// What the command is, for the page that says how it was made.
std::string command_of(const ValidateOptions& options) {
    std::string command = "stowage validate";
    if (options.run) command += " --run";
    for (const std::string& input : options.inputs) command += " " + input;
    if (options.running.out) command += " --out " + *options.running.out;
    if (options.hardware) command += " --hardware " + *options.hardware;
    return command;
}

class Validation {
public:
    Validation(const ValidateOptions& options, SliceRecordings& recordings) : options_(options) {
        sources_.recordings = &recordings;
        comparison_.date = options.date;
        comparison_.command = command_of(options);
        if (!options.hardware) return;
        sources_.hardware = reader::read_hardware(*options.hardware);
        comparison_.hardware = sources_.hardware->name;
    }

    void add(ValidationRunResult result) {
        for (const reports::LeftOutRun& run : result.failed) comparison_.failed.push_back(run);
        for (const MeasuredItem& item : result.measured) compare(item);
    }

    void compare(const MeasuredItem& item) {
        try {
            add(compare_measurement(item, sources_));
            if (!comparison_.machine) comparison_.machine = machine_of(item);
        } catch (const types::InputError&) {
            throw;
        } catch (const types::Error& error) {
            comparison_.failed.push_back({item.name, error.what()});
        }
    }

    /// Of what was not measured: its prediction, if there is one.
    void predict(const ValidationItem& item, const reports::LeftOutRun& why) {
        if (item.scenario().implementation != types::Implementation::stowage)
            return comparison_.not_measured.push_back({item.name, "its layers are Megatron's, which do not run here"});
        try {
            add(predict_only(prepare_item(options_.common, item).execution, item.name, sources_));
            comparison_.not_measured.push_back(why);
        } catch (const types::Error& error) {
            const std::string message = error.what();
            comparison_.failed.push_back({item.name, message.substr(0, message.find('\n'))});
        }
    }

    void set_bars(std::vector<reports::Bar> bars) { comparison_.bars = std::move(bars); }
    [[nodiscard]] const reports::Comparison& result() const { return comparison_; }

private:
    void add(reports::ComparedRun run) {
        if (!run.recording_problem.empty())
            comparison_.failed.push_back({run.name, "not predicted from its recording: " + run.recording_problem});
        comparison_.runs.push_back(std::move(run));
    }

    static std::optional<recording::Machine> machine_of(const MeasuredItem& item) {
        return reports::read_measurement(item.document, item.file).machine;
    }

    const ValidateOptions& options_;
    PredictionSources sources_;
    reports::Comparison comparison_;
};

void predict_the_rest(const std::vector<ValidationItem>& items, const ValidationRunResult& result,
                      Validation& validation) {
    for (const reports::LeftOutRun& left : result.not_run) {
        const auto item =
            std::find_if(items.begin(), items.end(), [&](const ValidationItem& one) { return one.name == left.name; });
        if (item != items.end()) validation.predict(*item, left);
    }
}

void answer(const ValidateOptions& options, const reports::Comparison& comparison) {
    if (options.report) reports::write_file(*options.report, reports::comparison_page(comparison));
    if (options.report) say(options.common, "wrote " + *options.report);
    if (options.common.json)
        print(reports::to_text(reports::comparison_json(comparison)));
    else if (!options.common.quiet)
        print(reports::comparison_text(comparison));
}

types::ExitCode verdict(const reports::Comparison& comparison) {
    const std::vector<reports::JudgedBar> bars = reports::judge(comparison);
    const bool met = std::all_of(bars.begin(), bars.end(), [](const auto& judged) { return judged.met(); });
    return met && comparison.failed.empty() ? types::ExitCode::yes : types::ExitCode::no;
}

types::ExitCode validate_runs(const ValidateOptions& options) {
    const ValidationInputs inputs = read_inputs(options);
    SliceRecordings recordings(options.running.out);
    for (const std::string& file : inputs.recordings) recordings.add_file(file);
    Validation validation(options, recordings);
    validation.set_bars(bars_of(options, inputs.bars));
    if (options.report) reports::OutputFile can_be_written(*options.report);
    ValidationRunOptions running = options.running;
    if (options.time_limit) running.time_limit = parse_seconds("--time-limit", *options.time_limit);
    running.records = !options.no_recording;
    ValidationRunResult result = options.run ? run_items(options.common, inputs.items, running, recordings)
                                             : find_measurements(inputs.items, running);
    for (const MeasuredItem& item : inputs.measurements) validation.compare(item);
    predict_the_rest(inputs.items, result, validation);
    validation.add(std::move(result));
    answer(options, validation.result());
    return verdict(validation.result());
}

types::ExitCode run_validate(const ValidateOptions& options) {
    refuse_combinations(options);
    if (!options.table.table.empty()) return validate_memory_table(options.common, options.table);
    return validate_runs(options);
}

void add_memory_options(CLI::App& verb, ValidateOptions& options) {
    verb.add_option("--megatron-memory", options.table.table,
                    "jobs with their arguments and the memory that they recorded (YAML)")
        ->type_name("TABLE");
    verb.add_option("--job", options.table.job, "of the table: only jobs with this in their names, and their bytes")
        ->type_name("TEXT");
    verb.add_option("--gpu", options.table.gpu, "of the table: only runs on this type of GPU")->type_name("TYPE");
}

void add_running_options(CLI::App& verb, ValidateOptions& options) {
    verb.add_flag("--run", options.run, "run what has no measurement yet, on a GPU");
    verb.add_option("--out", options.running.out, "folder of the measurements; what is there is not run again")
        ->type_name("FOLDER");
    verb.add_flag("--no-recording", options.no_recording, "record no slice: nothing is predicted from recordings");
    verb.add_option("--shard", options.shard, "only the i-th of n parts, all of a slice in one")->type_name("I/N");
    verb.add_option("--only", options.only, "only configurations with this in their names")->type_name("TEXT");
    verb.add_option("--time-limit", options.time_limit, "begin no configuration that would not fit")
        ->type_name("SECONDS");
    verb.add_option("--gemm-table", options.running.gemm_table,
                    "algorithms of matrix products (gemms.json in the folder)")
        ->type_name("FILE");
}

void add_judging_options(CLI::App& verb, ValidateOptions& options) {
    verb.add_option("--hardware", options.hardware, "predict with this machine in place of the scenarios' own")
        ->type_name("FILE");
    verb.add_option("--bar", options.bars, "a limit, as hardware.step_time_us.mean=0.05; more than one may be given")
        ->expected(1)
        ->take_all()
        ->type_name("BAR");
    verb.add_option("--report", options.report, "write a page (Markdown) here")->type_name("FILE");
    verb.add_option("--date", options.date, "that the page bears")->type_name("TEXT");
}

/// For scenarios and plans; as in `execute`.
void add_settings(CLI::App& verb, ValidateOptions& options) {
    reader::RunSettings& settings = options.settings;
    verb.add_option("--policy", settings.policy, "of scenarios: megatron, stowage or none, as in execute")
        ->check(CLI::IsMember({"megatron", "stowage", "none"}))
        ->type_name("POLICY");
    verb.add_option("--allocator", settings.allocator, "of scenarios: caching or planned")
        ->check(CLI::IsMember({"caching", "planned"}))
        ->type_name("KIND");
    verb.add_option("--rank", settings.rank, "of scenarios: pipeline rank")
        ->check(CLI::Range(std::int64_t{0}, kMost))
        ->type_name("R");
    verb.add_option("--offload-bytes", options.offload_bytes, "of scenarios, policy stowage: of one microbatch")
        ->type_name("SIZE");
    verb.add_option("--reload-ahead", settings.reload_ahead, "of scenarios, policy stowage")
        ->check(CLI::Range(std::int64_t{1}, kMost))
        ->type_name("N");
    verb.add_option("--join-after", settings.join_after, "of scenarios, policy stowage")
        ->check(CLI::Range(std::int64_t{1}, kMost))
        ->type_name("N");
    verb.add_option("--steps", settings.steps, "of scenarios: steps to time (3 to 20, some 1.5 s)")
        ->check(CLI::Range(std::int64_t{1}, kMostSteps))
        ->type_name("N");
    verb.add_option("--warmup-seconds", settings.warmup_seconds, "of scenarios (1.25)")
        ->check(CLI::Range(0.0, 3600.0))
        ->type_name("SECONDS");
}

}  // namespace

void add_validate_command(CLI::App& app, Run& chosen) {
    const auto options = std::make_shared<ValidateOptions>();
    CLI::App* const verb = add_verb(
        app, "validate", "Predictions beside measurements: of runs on a GPU, or of memory that Megatron-LM recorded.",
        "stowage validate --run scenarios/validation --out measured --time-limit 600 --report validation.md\n"
        "  stowage validate --megatron-memory tests/data/megatron_recorded_memory.yaml",
        options->common);
    verb->add_option("INPUT", options->inputs,
                     "scenarios, plans, lists of configurations, measurements, or folders of them");
    add_running_options(*verb, *options);
    add_judging_options(*verb, *options);
    add_settings(*verb, *options);
    add_memory_options(*verb, *options);
    verb->callback([options, &chosen] { chosen = [options] { return run_validate(*options); }; });
}

}  // namespace stowage::cli
