// What calls take of a launch queue, beside the activities of the recordings that are shipped.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/search/job.hpp"
#include "planner/search/recording_use.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/recording/recording_file.hpp"

namespace stowage::search {
namespace {

using layers::DurationSource;
using layers::Kernel;
using layers::LayerScript;

std::string path_of(const std::string& name) {
    return std::string(STOWAGE_SOURCE_DIR) + "/scenarios/recordings/" + name + ".json";
}

/// Kernels of both that were measured; the second has the recorded number.
void compare(const LayerScript& said, const LayerScript& measured, std::int64_t& compared) {
    for (std::size_t i = 0; i < said.kernels.size(); ++i) {
        const Kernel& kernel = said.kernels[i];
        if (kernel.call.call == layers::Call::clear) continue;  // the next step's number is written right behind it
        if (measured.kernels[i].source != DurationSource::measured) continue;
        ++compared;
        // Some GEMMs are chosen without the memset.
        const std::int64_t fewer = kernel.kind == types::KernelClass::gemm ? 1 : 0;
        EXPECT_LE(measured.kernels[i].launches, kernel.launches) << kernel.name;
        EXPECT_GE(measured.kernels[i].launches, kernel.launches - fewer) << kernel.name;
    }
}

class RecordedLaunches : public testing::TestWithParam<const char*> {};

TEST_P(RecordedLaunches, AreWhatTheCallsSay) {
    const recording::Recording recording = recording::read_recording(path_of(GetParam()));
    const types::Scenario scenario = reader::read_scenario_text(
        std::string(STOWAGE_SOURCE_DIR) + "/scenarios/recorded.yaml", recording.scenario_text);
    const Job job = prepare(scenario);
    Job measured = job;
    apply_recording(measured, recording, scenario);
    const auto rank = static_cast<std::size_t>(recording.pipeline_rank);
    std::int64_t compared = 0;
    for (std::size_t i = 0; i < job.stages[rank].scripts.size(); ++i)
        compare(job.stages[rank].scripts[i], measured.stages[rank].scripts[i], compared);
    compare(job.stages[rank].optimizer, measured.stages[rank].optimizer, compared);
    EXPECT_GT(compared, 20);
}

INSTANTIATE_TEST_SUITE_P(Shipped, RecordedLaunches,
                         testing::Values("dense-8x4096", "llama3-70b-tp8", "qwen3-30b-a3b-ep8",
                                         "deepseek-v3-pp16-ep64-slice"),
                         [](const auto& one) {
                             std::string name = one.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace stowage::search
