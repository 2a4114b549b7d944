#include <ctime>
#include <memory>

#include "cli/gpu_library.hpp"
#include "cli/hardware_choice.hpp"
#include "cli/outputs.hpp"
#include "cli/verb.hpp"
#include "profiler/calibrate/calibration_report.hpp"
#include "profiler/calibrate/hardware_yaml.hpp"
#include "reports/output_file.hpp"

namespace stowage::cli {
namespace {

struct CalibrateOptions {
    CommonOptions common;
    std::string out;
    std::optional<std::string> base;
};

/// "2026-11-30". A build that is to be repeatable names the second: SOURCE_DATE_EPOCH.
std::string today() {
    std::time_t now = std::time(nullptr);
    if (const char* const fixed = std::getenv("SOURCE_DATE_EPOCH"))
        now = static_cast<std::time_t>(std::strtoll(fixed, nullptr, 10));
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 16> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts);
    return text.data();
}

calibrate::Base read_named_base(const CalibrateOptions& options) {
    refuse_to_replace(*options.base, "--out", options.out);
    return calibrate::read_base(*options.base);
}

/// The shipped file of such a device. Asked before anything is measured.
calibrate::Base read_fitting_base(const CalibrateOptions& options, GpuVerbs& gpu) {
    const std::string device = gpu.machine().device;
    const auto shipped = shipped_machine_of_device(device);
    if (!shipped)
        throw CommandLineError(
            "--base: no shipped hardware file is of '" + device +
            "'\nhint: name the file of a similar machine: its links, host memory and framework costs "
            "are taken over, as one GPU does not show them");
    refuse_to_replace(shipped->string(), "--out", options.out);
    return calibrate::read_base(*shipped);
}

types::ExitCode run_calibrate(const CalibrateOptions& options) {
    if (options.out.empty()) throw CommandLineError("--out: found no name, expected a file to write");
    std::optional<calibrate::Base> base;
    if (options.base) base = read_named_base(options);
    GpuVerbs& gpu = open_gpu_verbs("calibrate");
    if (!base) base = read_fitting_base(options, gpu);
    reports::OutputFile file(options.out);
    const calibrate::Measurements measurements =
        gpu.measure({}, [&](const std::string& line) { say(options.common, line); });
    const calibrate::Calibration calibration = calibrate::calibrate(measurements, *base, today());
    file.write(calibrate::hardware_yaml(calibration, "One " + measurements.machine.device +
                                                         ", measured by 'stowage calibrate'; what it cannot tell is " +
                                                         base->name + "'s. See the sources."));
    file.commit();
    say(options.common, "wrote " + options.out);
    if (options.common.json)
        print(calibrate::calibration_json(calibration, measurements, *base).dump(2) + "\n");
    else if (!options.common.quiet)
        print(calibrate::calibration_text(calibration, measurements, *base));
    return types::ExitCode::yes;
}

}  // namespace

void add_calibrate_command(CLI::App& app, Run& chosen) {
    const auto options = std::make_shared<CalibrateOptions>();
    CLI::App* const verb = add_verb(app, "calibrate", "Measures this machine's rates and writes its hardware file.",
                                    "stowage calibrate --out my-machine.yaml --json > report.json", options->common);
    verb->add_option("--out", options->out, "write the hardware file here (YAML)")->required()->type_name("FILE");
    verb->add_option("--base", options->base,
                     "hardware file for what one GPU cannot tell: links, host memory, framework costs (default: the "
                     "shipped one of such a device)")
        ->type_name("FILE");
    verb->callback([options, &chosen] { chosen = [options] { return run_calibrate(*options); }; });
}

}  // namespace stowage::cli
