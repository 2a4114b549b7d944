// The whole calibration on a device. What is asserted is what has to hold on any device; the table is printed, and
// written beside its hardware file where STOWAGE_CALIBRATION_OUT names a folder.
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <numeric>

#include "profiler/calibrate/calibration_report.hpp"
#include "profiler/calibrate/campaign.hpp"
#include "profiler/calibrate/device_bench.hpp"
#include "profiler/calibrate/hardware_yaml.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/support/gpu_test.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::calibrate {
namespace {

using types::operator""_MiB;

class CalibrationGpu : public support::GpuTest {};

constexpr double kMostSeconds = 60;

std::string text_of(const Calibration& calibration) { return hardware_yaml(calibration, "written by a test"); }

void keep(const std::string& name, const std::string& text) {
    const char* const folder = std::getenv("STOWAGE_CALIBRATION_OUT");
    if (folder != nullptr) std::ofstream(std::string(folder) + "/" + name) << text;
}

TEST_F(CalibrationGpu, MeasuresThisMachineWithinAMinute) {
    const auto bench = make_device_bench();
    const Measurements measurements = run_campaign(*bench, {}, [](const std::string& line) {
        fmt::print("{}\n", line);
        std::fflush(stdout);
    });
    const Base base = read_base(STOWAGE_SOURCE_DIR "/scenarios/hardware/h200-8gpu.yaml");
    const Calibration calibration = calibrate(measurements, base, "2026-11-30");
    fmt::print("{}\n", calibration_text(calibration, measurements, base));
    keep("machine.yaml", text_of(calibration));
    keep("calibration.json", calibration_json(calibration, measurements, base).dump(2));

    double seconds = 0;
    for (const Phase& phase : measurements.phases) seconds += phase.seconds;
    EXPECT_LT(seconds, kMostSeconds);
    const support::TemporaryFolder folder;
    support::write_text(folder / "machine.yaml", text_of(calibration));
    const types::Node node = reader::read_hardware(folder / "machine.yaml");
    EXPECT_EQ(node.device.gemm_bf16.rate, calibration.node.device.gemm_bf16.rate);
    for (const NamedFit& fit : calibration.fits) EXPECT_TRUE(fit.fit.converged) << fit.name;
    for (const CaseError& one : calibration.layer) EXPECT_LT(std::abs(one.error()), 0.3) << one.name;
    for (const auto& calls : measurements.host_calls) EXPECT_FALSE(calls.empty());
    EXPECT_GT(measurements.launch_queue_depth, 100);
}

TEST_F(CalibrationGpu, ShowsNothingOfABlockThatIsTooShortForCopies) {
    const auto bench = make_device_bench();
    const KernelCase kernel = linear(KernelKind::linear_forward, 2048, 2048, 2048);
    const std::vector<KernelCase> kernels{kernel};
    const Prepared prepared = bench->prepare(kernels);
    EXPECT_TRUE(prepared.refused.empty());
    for (const Beside beside : {Beside::nothing, Beside::device_to_host, Beside::host_to_device, Beside::both}) {
        const double before = bench->seconds();
        const BesideBlock block = bench->run_beside(kernel, 5, beside);
        EXPECT_GE(bench->seconds() - before, 0.01) << "every block takes its two lengths";
        EXPECT_GT(block.block.call_us, 5);
        EXPECT_EQ(block.covered > 0, beside != Beside::nothing);
    }
    EXPECT_GT(bench->copy({CopyDirection::device_to_host, 1_MiB, true}), 5);
    EXPECT_GT(bench->copy({CopyDirection::host_to_device, 1_MiB, false}), 5);
}

TEST_F(CalibrationGpu, RefusesWhatTheDeviceCannotRun) {
    const auto bench = make_device_bench();
    const std::vector<KernelCase> kernels{attention(KernelKind::attention_forward, 64, 64, 1, 12, 12),
                                          rows_of(KernelKind::memory_copy, (1_MiB).count)};
    const Prepared prepared = bench->prepare(kernels);
    ASSERT_EQ(prepared.refused.size(), 1U);
    EXPECT_EQ(prepared.refused[0].kernel, kernels[0]);
    EXPECT_FALSE(prepared.refused[0].reason.empty());
}

}  // namespace
}  // namespace stowage::calibrate
