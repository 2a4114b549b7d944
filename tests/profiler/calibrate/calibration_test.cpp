// From a machine with known constants, noise and outliers to its hardware file.
#include "profiler/calibrate/calibration.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "profiler/calibrate/calibration_report.hpp"
#include "profiler/calibrate/campaign.hpp"
#include "profiler/calibrate/hardware_yaml.hpp"
#include "tests/profiler/calibrate/fake_bench.hpp"

namespace stowage::calibrate {
namespace {

using types::operator""_GiB;

const std::string kDate = "2026-11-30";

Base shipped() { return read_base(STOWAGE_SOURCE_DIR "/scenarios/hardware/h200-8gpu.yaml"); }

Measurements measure(FakeBench& bench) {
    return run_campaign(bench, {}, [](const std::string&) {});
}

Calibration calibrated(const Truth& truth, std::uint64_t seed = 1) {
    FakeBench bench(truth, seed);
    return calibrate(measure(bench), shipped(), kDate);
}

std::string source(const Calibration& calibration, Section section, const std::string& figures) {
    for (const auto& [key, text] : calibration.sources.at(section))
        if (key == figures) return text;
    return "no source of " + figures;
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const Figure& figure(const Calibration& calibration, const std::string& name) {
    const auto found = std::ranges::find(calibration.figures, name, &Figure::name);
    EXPECT_NE(found, calibration.figures.end()) << name;
    return *found;
}

double us(types::Nanoseconds time) { return types::in_microseconds(time); }

// Times scatter by 1 % and one in 23 is half as long again; rates follow clocks of 1450 to 1700 MHz. What is found
// holds at 1500 MHz, the layer's clock, to half a hundredth.
TEST(Calibration, FindsRatesThroughNoiseOutliersAndChangingClocks) {
    const Truth truth;
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
        const types::Device device = calibrated(truth, seed).node.device;
        EXPECT_NEAR(device.gemm_bf16.rate / 1e12, truth.gemm_tflop, 0.005 * truth.gemm_tflop) << seed;
        EXPECT_NEAR(device.gemm_fp8.rate / 1e12, truth.fp8_tflop, 0.01 * truth.fp8_tflop) << seed;
        EXPECT_NEAR(us(device.gemm_ramp), truth.ramp_us, 0.3) << seed;
        EXPECT_NEAR(device.memory_bandwidth.rate / 1e9, truth.memory_gb, 0.01 * truth.memory_gb) << seed;
        EXPECT_NEAR(device.strided_bandwidth.rate / 1e9, truth.strided_gb, 0.01 * truth.strided_gb) << seed;
        EXPECT_NEAR(us(device.kernel_overhead), truth.overhead_us, 1e-3) << seed;
        EXPECT_NEAR(device.attention_forward_bf16.rate / 1e12, truth.forward_tflop, 0.03 * truth.forward_tflop) << seed;
        EXPECT_NEAR(device.attention_backward_bf16.rate / 1e12, truth.backward_tflop, 0.04 * truth.backward_tflop)
            << seed;
        EXPECT_NEAR(device.attention_forward.start_keys, truth.forward.start_keys, 60) << seed;
        EXPECT_NEAR(device.attention_forward.tail_blocks, truth.forward.tail_blocks, 25) << seed;
    }
}

// The rate, the start and the tail of attention hang together; the time that they give together is what counts.
TEST(Calibration, PredictsTheLayerItWasMadeFrom) {
    const Calibration calibration = calibrated({});
    ASSERT_EQ(calibration.layer.size(), mix_kernels().size());
    for (const CaseError& one : calibration.layer) EXPECT_NEAR(one.error(), 0, 0.015) << one.name;
}

TEST(Calibration, FindsTheRatesOfOtherHeadSizes) {
    const types::Device device = calibrated({}).node.device;
    const auto share = [&](double size) {
        const auto found = std::ranges::find(device.attention_head_sizes, size, &types::HeadSizeRate::head_size);
        return found == device.attention_head_sizes.end() ? types::HeadSizeRate{} : *found;
    };
    EXPECT_NEAR(share(64).forward, 0.7, 0.03);
    EXPECT_NEAR(share(160).backward, 0.95, 0.04);
    EXPECT_NEAR(share(256).forward, 1.05, 0.04);
    EXPECT_EQ(share(128).forward, 1);
}

// 64 KiB take 1.5 + 65536 / 55000 = 2.69 us, a GiB 1.5 + 19522.6 us.
TEST(Calibration, FindsCopyTimesAndWhatBothDirectionsKeep) {
    const types::CopyEngines copy = calibrated({}).node.copy;
    ASSERT_EQ(copy.device_to_host.points().size(), copy_sizes().size());
    EXPECT_NEAR(us(copy.device_to_host.points().front().time), 2.69, 0.03);
    EXPECT_NEAR(us(copy.host_to_device.points().back().time), 19524, 200);
    EXPECT_NEAR(copy.duplex_device_to_host, 0.92, 0.01);
    EXPECT_NEAR(copy.duplex_host_to_device, 0.80, 0.02);
}

// The fake's blocks are covered by copies for 0.9 of their time; what is found is for the covered time.
TEST(Calibration, FindsSlowdownsAndSaysWhenTheyCannotBeToldFromNone) {
    const Calibration calibration = calibrated({});
    const auto& slowdown = calibration.node.copy.slowdown;
    EXPECT_NEAR(slowdown[static_cast<int>(types::KernelClass::memory_bound)].under_d2h, 0.01, 0.001);
    EXPECT_NEAR(slowdown[static_cast<int>(types::KernelClass::attention)].under_both, 0.004, 0.001);
    EXPECT_NEAR(slowdown[static_cast<int>(types::KernelClass::gemm)].under_h2d, 0, 0.0005);
    EXPECT_TRUE(says(source(calibration, Section::slowdown, "gemm"), "cannot be told from 0"));
    EXPECT_FALSE(says(source(calibration, Section::slowdown, "memory_bound"), "cannot be told from 0"));
    EXPECT_TRUE(figure(calibration, "gemm beside both").value.contains(0));
    EXPECT_FALSE(figure(calibration, "memory_bound beside both").value.contains(0));
}

// host_call's times are 1, 2, 3, ... us in the order of HostCall; a figure over several calls is their mean.
TEST(Calibration, FindsHostCosts) {
    const types::HostCosts host = calibrated({}).node.host;
    EXPECT_NEAR(us(host.kernel_launch), 1, 0.02);
    EXPECT_NEAR(us(host.copy_launch), 2.5, 0.03);
    EXPECT_NEAR(us(host.event_call), 5, 0.05);
    EXPECT_NEAR(us(host.synchronize), 7, 0.07);
    EXPECT_NEAR(us(host.device_allocation_call), 8.5, 0.09);
    EXPECT_NEAR(us(host.gemm_call), 11, 0.12);
    EXPECT_NEAR(us(host.attention_call), 13.5, 0.14);
    EXPECT_NEAR(us(host.pinned_allocation_per_gib), 600'000, 6000);
    EXPECT_EQ(host.launch_queue_depth, 1022);
}

TEST(Calibration, FindsWhatGraphsCost) {
    const types::GraphCosts graph = calibrated({}).node.graph;
    EXPECT_NEAR(us(graph.launch), 1.7, 0.05);
    EXPECT_NEAR(us(graph.launch_per_node), 0.002, 0.0005);
    EXPECT_NEAR(us(graph.launch_per_branch), 2.2, 0.05);
    EXPECT_NEAR(us(graph.node_overhead), 0.6, 0.001);
    EXPECT_NEAR(us(graph.instantiate_per_node), 5, 0.001);
    EXPECT_NEAR(static_cast<double>(graph.memory_per_graph.count), 112 << 10, 1200);
    EXPECT_NEAR(static_cast<double>(graph.memory_per_node.count), 2400, 24);
    EXPECT_NEAR(static_cast<double>(graph.memory_per_branch.count), 100 << 10, 1100);
}

// The fake's chip has a clock of 1500 (1 + 0.2 (1 - duty)) MHz and rates in proportion: 5 % more at 0.75.
TEST(Calibration, ShowsThatAChipThatWaitsIsFaster) {
    const Calibration calibration = calibrated({});
    ASSERT_EQ(calibration.duties.size(), 3U);
    EXPECT_EQ(calibration.duties[0].duty, 1);
    EXPECT_NEAR(calibration.duties[0].gemm_tflop_per_s, 700, 4);
    EXPECT_NEAR(calibration.duties[1].gemm_tflop_per_s, 735, 5);
    EXPECT_NEAR(calibration.duties[2].gemm_tflop_per_s, 770, 5);
    EXPECT_NEAR(calibration.duties[1].state.clock_mhz, 1575, 1);
    EXPECT_TRUE(says(source(calibration, Section::device, "rates_by_duty"), "when busy 75 % of the time"));
}

// 1.05 and 1.1, of GEMMs and of attention: both follow the fake's clock. At full duty norms and activations move 1.39
// GB in 0.33 ms, GEMMs take 8.96 and attention 0.33 and 1.27: 0.969 of the layer.
TEST(Calibration, FindsTheRatesOfAChipThatMultipliesForPartOfTheTime) {
    const std::vector<types::DutyRate> rates = calibrated({}).node.device.rates_by_duty;
    ASSERT_EQ(rates.size(), 3U);
    EXPECT_NEAR(rates[0].duty, 0.5 * 0.969, 0.003);
    EXPECT_NEAR(rates[0].gemm, 1.1, 0.01);
    EXPECT_NEAR(rates[0].attention, 1.1, 0.015);
    EXPECT_NEAR(rates[1].duty, 0.75 * 0.969, 0.003);
    EXPECT_NEAR(rates[1].gemm, 1.05, 0.01);
    EXPECT_NEAR(rates[1].attention, 1.05, 0.015);
    EXPECT_NEAR(rates[2].duty, 0.969, 0.003);
    EXPECT_EQ(rates[2].gemm, 1);
    EXPECT_EQ(rates[2].attention, 1);
}

// A chip that is not at its power limit at all: a thousandth of noise would put 0.999 into the file, which is refused.
TEST(Calibration, WritesNoLossOfRateForAChipThatWaits) {
    FakeBench bench;
    Measurements measurements = measure(bench);
    const MixTimes full = *std::ranges::find(measurements.mixes, 1.0, &MixTimes::duty);
    for (MixTimes& mix : measurements.mixes) {
        mix.rounds = full.rounds;
        for (MixRound& round : mix.rounds)
            for (double& us : round.call_us) us *= mix.duty < 1 ? 1.001 : 1;
    }
    for (const types::DutyRate& rate : calibrate(measurements, shipped(), kDate).node.device.rates_by_duty) {
        EXPECT_EQ(rate.gemm, 1);
        EXPECT_EQ(rate.attention, 1);
    }
}

TEST(Calibration, TakesFromTheBaseWhatOneDeviceCannotTell) {
    const Base base = shipped();
    const Calibration calibration = calibrated({});
    EXPECT_EQ(calibration.node.nvlink.rate.rate, base.node.nvlink.rate.rate);
    EXPECT_EQ(calibration.node.network.latency, base.node.network.latency);
    EXPECT_EQ(calibration.node.host_memory, base.node.host_memory);
    EXPECT_EQ(calibration.node.gpus_per_node, base.node.gpus_per_node);
    EXPECT_EQ(calibration.node.host.framework_forward, base.node.host.framework_forward);
    EXPECT_EQ(source(calibration, Section::nvlink, "rate"),
              "from h200-8gpu.yaml: NVIDIA H200 data sheet, NVLink 900 GB/s in both directions together");
    EXPECT_TRUE(says(source(calibration, Section::host, "framework"), "from h200-8gpu.yaml: measured; PyTorch eager"));
    EXPECT_EQ(source(calibration, Section::graph, "framework"), "from h200-8gpu.yaml, not measured here")
        << "the base's source has other names";
    EXPECT_TRUE(says(source(calibration, Section::top, "measured"), "NVIDIA H200, one of 1 visible, 2026-11-30"));
    EXPECT_EQ(calibration.node.device.name, "NVIDIA H200");
    EXPECT_EQ(calibration.node.device.memory, 139_GiB);
}

// Block-scaled FP8 is not measured: it keeps its ratio to tensorwise FP8.
TEST(Calibration, KeepsTheRatioOfRatesThatAreNotMeasured) {
    const Base base = shipped();
    const types::Device device = calibrated({}).node.device;
    EXPECT_NEAR(device.gemm_fp8_blockwise.rate / device.gemm_fp8.rate,
                base.node.device.gemm_fp8_blockwise.rate / base.node.device.gemm_fp8.rate, 1e-3);
}

TEST(Calibration, WithoutClocksTakesBlocksAsTheyAre) {
    FakeBench bench;
    bench.hide_clocks();
    const Calibration calibration = calibrate(measure(bench), shipped(), kDate);
    EXPECT_NEAR(calibration.node.device.gemm_bf16.rate / 1e12, 700, 20) << "the layer's, whatever the clocks";
    EXPECT_TRUE(says(source(calibration, Section::device, "gemm_bf16"), "clock and power not known"));
}

TEST(Calibration, LeavesToTheBaseWhatTheMachineRefused) {
    FakeBench bench;
    bench.refuse("attention");
    const Base base = shipped();
    const Calibration calibration = calibrate(measure(bench), base, kDate);
    EXPECT_EQ(calibration.node.device.attention_forward_bf16.rate, base.node.device.attention_forward_bf16.rate);
    EXPECT_EQ(calibration.node.device.attention_backward.start_keys, base.node.device.attention_backward.start_keys);
    EXPECT_TRUE(says(source(calibration, Section::slowdown, "attention"), "from h200-8gpu.yaml"));
    EXPECT_NEAR(calibration.node.device.gemm_bf16.rate / 1e12, 700, 4);
    for (const types::DutyRate& rate : calibration.node.device.rates_by_duty)
        EXPECT_EQ(rate.attention, rate.gemm) << rate.duty;
}

TEST(Calibration, OfNothingMeasuredIsTheBase) {
    const Base base = shipped();
    const Calibration calibration = calibrate({}, base, kDate);
    EXPECT_EQ(calibration.node.device.gemm_bf16.rate, base.node.device.gemm_bf16.rate);
    EXPECT_EQ(calibration.node.device.memory, base.node.device.memory);
    EXPECT_EQ(calibration.node.copy.device_to_host.points().size(), base.node.copy.device_to_host.points().size());
    EXPECT_EQ(calibration.node.graph.memory_per_node, base.node.graph.memory_per_node);
    EXPECT_EQ(calibration.node.device.rates_by_duty.size(), base.node.device.rates_by_duty.size());
    EXPECT_TRUE(calibration.figures.empty());
}

TEST(Calibration, RoundsToDigitsThatCount) {
    EXPECT_EQ(rounded(704.96), 705);
    EXPECT_EQ(rounded(1234.56), 1235);
    EXPECT_EQ(rounded(123456.0), 123500);
    EXPECT_EQ(rounded(0.0123456), 0.01235);
    EXPECT_EQ(rounded(-0.0123456, 2), -0.012);
    EXPECT_EQ(rounded(0), 0);
}

TEST(CalibrationReport, HoldsFiguresFitsAndCopies) {
    FakeBench bench;
    const Measurements measurements = measure(bench);
    const Base base = shipped();
    const Calibration calibration = calibrate(measurements, base, kDate);
    const Json report = calibration_json(calibration, measurements, base);
    EXPECT_EQ(report.at("schema"), "stowage/calibration/1");
    EXPECT_EQ(report.at("machine").at("device"), "NVIDIA H200");
    const Json& gemm = report.at("fits")[0];
    EXPECT_EQ(gemm.at("name"), "gemm_bf16");
    EXPECT_GT(gemm.at("left_out"), 0);
    EXPECT_LT(gemm.at("root_mean_square"), 0.01);
    EXPECT_EQ(gemm.at("parameters")[1].at("name"), "ramp_us");
    EXPECT_EQ(report.at("copies").size(), 4 * copy_sizes().size() - 2);
    EXPECT_EQ(report.at("duty").size(), 3U);
    EXPECT_EQ(report.at("beside_copies").size(), beside_kernels().size());
    EXPECT_EQ(report.dump(), calibration_json(calibration, measurements, base).dump());
    const std::string text = calibration_text(calibration, measurements, base);
    for (const char* part :
         {"NVIDIA H200 measured; the rest from h200-8gpu.yaml", "gemm_bf16", "busy  75 %", "s in all"})
        EXPECT_TRUE(says(text, part)) << part << "\n" << text;
}

}  // namespace
}  // namespace stowage::calibrate
