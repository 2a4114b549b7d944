#include "profiler/calibrate/hardware_yaml.hpp"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <sstream>

#include "profiler/calibrate/campaign.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/profiler/calibrate/fake_bench.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::calibrate {
namespace {

namespace fs = std::filesystem;

class HardwareYaml : public testing::Test {
protected:
    [[nodiscard]] types::Node written_and_read(const Calibration& calibration) const {
        support::write_text(folder_ / "machine.yaml", hardware_yaml(calibration, "a remark"));
        return reader::read_hardware(folder_ / "machine.yaml");
    }
    support::TemporaryFolder folder_;
};

void expect_equal(const types::Device& one, const types::Device& other) {
    EXPECT_EQ(one.name, other.name);
    EXPECT_EQ(one.compute_capability, other.compute_capability);
    EXPECT_EQ(one.memory, other.memory);
    EXPECT_DOUBLE_EQ(one.gemm_bf16.rate, other.gemm_bf16.rate);
    EXPECT_DOUBLE_EQ(one.gemm_fp8.rate, other.gemm_fp8.rate);
    EXPECT_DOUBLE_EQ(one.gemm_fp8_blockwise.rate, other.gemm_fp8_blockwise.rate);
    EXPECT_EQ(one.gemm_ramp, other.gemm_ramp);
    EXPECT_DOUBLE_EQ(one.attention_forward_bf16.rate, other.attention_forward_bf16.rate);
    EXPECT_DOUBLE_EQ(one.attention_backward_bf16.rate, other.attention_backward_bf16.rate);
    EXPECT_EQ(one.attention_forward.start_keys, other.attention_forward.start_keys);
    EXPECT_EQ(one.attention_backward.tail_blocks, other.attention_backward.tail_blocks);
    ASSERT_EQ(one.attention_head_sizes.size(), other.attention_head_sizes.size());
    for (std::size_t i = 0; i < one.attention_head_sizes.size(); ++i) {
        EXPECT_EQ(one.attention_head_sizes[i].head_size, other.attention_head_sizes[i].head_size);
        EXPECT_EQ(one.attention_head_sizes[i].backward, other.attention_head_sizes[i].backward);
    }
    ASSERT_EQ(one.rates_by_duty.size(), other.rates_by_duty.size());
    for (std::size_t i = 0; i < one.rates_by_duty.size(); ++i) {
        EXPECT_EQ(one.rates_by_duty[i].duty, other.rates_by_duty[i].duty);
        EXPECT_EQ(one.rates_by_duty[i].gemm, other.rates_by_duty[i].gemm);
        EXPECT_EQ(one.rates_by_duty[i].attention, other.rates_by_duty[i].attention);
    }
    EXPECT_DOUBLE_EQ(one.memory_bandwidth.rate, other.memory_bandwidth.rate);
    EXPECT_DOUBLE_EQ(one.strided_bandwidth.rate, other.strided_bandwidth.rate);
    EXPECT_EQ(one.kernel_overhead, other.kernel_overhead);
}

void expect_equal(const types::CopyCurve& one, const types::CopyCurve& other) {
    ASSERT_EQ(one.points().size(), other.points().size());
    for (std::size_t i = 0; i < one.points().size(); ++i) {
        EXPECT_EQ(one.points()[i].size, other.points()[i].size);
        EXPECT_EQ(one.points()[i].time, other.points()[i].time);
    }
}

void expect_equal(const types::CopyEngines& one, const types::CopyEngines& other) {
    expect_equal(one.device_to_host, other.device_to_host);
    expect_equal(one.host_to_device, other.host_to_device);
    EXPECT_EQ(one.duplex_device_to_host, other.duplex_device_to_host);
    EXPECT_EQ(one.duplex_host_to_device, other.duplex_host_to_device);
    EXPECT_EQ(one.time_slice, other.time_slice);
    for (int i = 0; i < types::kKernelClassCount; ++i) {
        EXPECT_EQ(one.slowdown[i].under_d2h, other.slowdown[i].under_d2h);
        EXPECT_EQ(one.slowdown[i].under_h2d, other.slowdown[i].under_h2d);
        EXPECT_EQ(one.slowdown[i].under_both, other.slowdown[i].under_both);
    }
}

void expect_equal(const types::HostCosts& one, const types::HostCosts& other) {
    EXPECT_EQ(one.kernel_launch, other.kernel_launch);
    EXPECT_EQ(one.framework_forward, other.framework_forward);
    EXPECT_EQ(one.framework_backward, other.framework_backward);
    EXPECT_EQ(one.gemm_call, other.gemm_call);
    EXPECT_EQ(one.attention_call, other.attention_call);
    EXPECT_EQ(one.copy_launch, other.copy_launch);
    EXPECT_EQ(one.event_call, other.event_call);
    EXPECT_EQ(one.synchronize, other.synchronize);
    EXPECT_EQ(one.device_allocation_call, other.device_allocation_call);
    EXPECT_EQ(one.pinned_allocation_per_gib, other.pinned_allocation_per_gib);
    EXPECT_DOUBLE_EQ(one.memory_bandwidth.rate, other.memory_bandwidth.rate);
    EXPECT_EQ(one.launch_queue_depth, other.launch_queue_depth);
}

void expect_equal(const types::GraphCosts& one, const types::GraphCosts& other) {
    EXPECT_EQ(one.launch, other.launch);
    EXPECT_EQ(one.launch_per_node, other.launch_per_node);
    EXPECT_EQ(one.launch_per_branch, other.launch_per_branch);
    EXPECT_EQ(one.framework_forward, other.framework_forward);
    EXPECT_EQ(one.framework_backward, other.framework_backward);
    EXPECT_EQ(one.instantiate_per_node, other.instantiate_per_node);
    EXPECT_EQ(one.node_overhead, other.node_overhead);
    EXPECT_EQ(one.memory_per_graph, other.memory_per_graph);
    EXPECT_EQ(one.memory_per_node, other.memory_per_node);
    EXPECT_EQ(one.memory_per_branch, other.memory_per_branch);
}

void expect_equal(const types::Node& one, const types::Node& other) {
    EXPECT_EQ(one.name, other.name);
    EXPECT_EQ(one.gpus_per_node, other.gpus_per_node);
    EXPECT_EQ(one.host_memory, other.host_memory);
    expect_equal(one.device, other.device);
    expect_equal(one.copy, other.copy);
    expect_equal(one.host, other.host);
    expect_equal(one.graph, other.graph);
    EXPECT_DOUBLE_EQ(one.nvlink.rate.rate, other.nvlink.rate.rate);
    EXPECT_EQ(one.nvlink.latency, other.nvlink.latency);
    EXPECT_DOUBLE_EQ(one.network.rate.rate, other.network.rate.rate);
    EXPECT_EQ(one.network.latency, other.network.latency);
}

Calibration measured() {
    FakeBench bench;
    const Measurements measurements = run_campaign(bench, {}, [](const std::string&) {});
    return calibrate(measurements, read_base(STOWAGE_SOURCE_DIR "/scenarios/hardware/h200-8gpu.yaml"), "2026-11-30");
}

TEST_F(HardwareYaml, OfEveryShippedMachineReadsBackAsItWas) {
    int files = 0;
    for (const auto& entry : fs::directory_iterator(STOWAGE_SOURCE_DIR "/scenarios/hardware")) {
        SCOPED_TRACE(entry.path().filename().string());
        Base base = read_base(entry.path());
        Calibration calibration;
        calibration.node = base.node;
        calibration.sources = base.sources;
        expect_equal(written_and_read(calibration), base.node);
        ++files;
    }
    EXPECT_GT(files, 5);
}

TEST_F(HardwareYaml, OfACalibrationReadsBackAsItWas) {
    const Calibration calibration = measured();
    expect_equal(written_and_read(calibration), calibration.node);
}

TEST_F(HardwareYaml, OfTheSameCalibrationIsTheSameBytes) {
    EXPECT_EQ(hardware_yaml(measured(), "a remark"), hardware_yaml(measured(), "a remark"));
}

// Long ones are folded over several lines, short ones are not; either reads back as one line.
TEST_F(HardwareYaml, KeepsSourcesWhole) {
    const Calibration calibration = measured();
    const std::string text = hardware_yaml(calibration, "a remark");
    EXPECT_EQ(text.find("# a remark\nschema: stowage/hardware/1\n"), 0U);
    support::write_text(folder_ / "machine.yaml", text);
    const Base again = read_base(folder_ / "machine.yaml");
    for (const auto& [section, sources] : calibration.sources) {
        ASSERT_TRUE(again.sources.contains(section));
        EXPECT_EQ(again.sources.at(section), sources);
    }
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120U) << line;
}

TEST_F(HardwareYaml, WritesExactSizesAndTimes) {
    Calibration calibration;
    calibration.node = read_base(STOWAGE_SOURCE_DIR "/scenarios/hardware/h200-8gpu.yaml").node;
    calibration.node.device.memory = types::Bytes{(1LL << 30) + 1};
    calibration.node.device.kernel_overhead = types::Nanoseconds{1};
    calibration.node.graph.memory_per_graph = types::Bytes{3 << 20};
    const std::string text = hardware_yaml(calibration, "");
    EXPECT_NE(text.find("  memory: 1073741825 B\n"), std::string::npos) << text;
    EXPECT_NE(text.find("  kernel_overhead_us: 0.001\n"), std::string::npos) << text;
    EXPECT_NE(text.find("  memory_per_graph: 3 MiB\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("schema: "), 0U);
}

TEST_F(HardwareYaml, ReadsTheSourcesOfABase) {
    const Base base = read_base(STOWAGE_SOURCE_DIR "/scenarios/hardware/h200-8gpu.yaml");
    EXPECT_EQ(base.name, "h200-8gpu.yaml");
    ASSERT_EQ(base.sources.at(Section::nvlink).size(), 2U);
    EXPECT_EQ(base.sources.at(Section::nvlink)[0].first, "rate");
    EXPECT_EQ(base.sources.at(Section::slowdown)[0].first, "all classes");
    EXPECT_THROW(read_base(folder_ / "none.yaml"), types::InputError);
}

}  // namespace
}  // namespace stowage::calibrate
