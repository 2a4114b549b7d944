// The keys, ranges and lists of PYTORCH_CUDA_ALLOC_CONF as PyTorch 2.11 reads them (c10/core/AllocatorConfig.cpp,
// c10/cuda/CUDAAllocatorConfig.cpp). Which interval a list sets, and that '>' leaves the one before it alone, was seen
// in the sizes that it handed out.

#include "planner/memory/allocator_config.hpp"

#include <gtest/gtest.h>

namespace stowage::memory {
namespace {

using namespace types::literals;

AllocatorConfig read(std::string_view text) {
    const auto parsed = parse_allocator_config(text);
    if (const auto* error = std::get_if<AllocatorConfigError>(&parsed)) {
        ADD_FAILURE() << error->message;
        return {};
    }
    return std::get<ParsedAllocatorConfig>(parsed).config;
}

AllocatorConfigError error_of(std::string_view text) {
    const auto parsed = parse_allocator_config(text);
    const auto* error = std::get_if<AllocatorConfigError>(&parsed);
    if (error == nullptr) ADD_FAILURE() << text << " was accepted";
    return error == nullptr ? AllocatorConfigError{} : *error;
}

TEST(AllocatorConfig, IsTheDefaultWhereNothingIsSaid) {
    EXPECT_EQ(read(""), AllocatorConfig{});
    EXPECT_EQ(read("  "), AllocatorConfig{});
    EXPECT_EQ(read("backend:native"), AllocatorConfig{});
}

TEST(AllocatorConfig, ReadsEveryKeyThatDecidesWhereMemoryLies) {
    const AllocatorConfig config = read(
        "expandable_segments:True, max_split_size_mb:64,max_non_split_rounding_mb:40,"
        "garbage_collection_threshold:0.8,per_process_memory_fraction:0.5,graph_capture_record_stream_reuse:True,");
    EXPECT_TRUE(config.expandable_segments);
    EXPECT_EQ(config.max_split_size, 64_MiB);
    EXPECT_EQ(config.max_non_split_rounding, 40_MiB);
    EXPECT_DOUBLE_EQ(config.garbage_collection_threshold, 0.8);
    EXPECT_DOUBLE_EQ(config.per_process_memory_fraction, 0.5);
    EXPECT_TRUE(config.graph_capture_record_stream_reuse);
    EXPECT_FALSE(read("expandable_segments:True,expandable_segments:False").expandable_segments);
}

TEST(AllocatorConfig, TakesTheLargeSegmentAsTheLeastRoundingWhereverItStands) {
    const AllocatorConfig config = read("max_split_size_mb:40,large_segment_size_mb:40");
    EXPECT_EQ(config.large_segment, 40_MiB);
    EXPECT_EQ(config.max_non_split_rounding, 40_MiB);
    EXPECT_EQ(error_of("max_split_size_mb:30,large_segment_size_mb:40").position, 18U);
    EXPECT_EQ(error_of("max_split_size_mb:19").position, 18U);
    EXPECT_EQ(error_of("large_segment_size_mb:10").position, 22U);
}

TEST(AllocatorConfig, DividesEveryPowerOfTwoAlike) {
    EXPECT_EQ(read("roundup_power2_divisions:4").roundup_power2_divisions, PowerOfTwoDivisions{4});
}

TEST(AllocatorConfig, DividesPowersOfTwoByInterval) {
    // 2^8 MiB and below: 2; 2^9: 4; above: 16.
    const PowerOfTwoDivisions steps = read("roundup_power2_divisions:[256:2,512:4,>:16]").roundup_power2_divisions;
    EXPECT_EQ(steps.of(1_KiB), 2);
    EXPECT_EQ(steps.of(300_MiB), 2);
    EXPECT_EQ(steps.of(512_MiB), 4);
    EXPECT_EQ(steps.of(1023_MiB), 4);
    EXPECT_EQ(steps.of(1_GiB), 16);
    EXPECT_EQ(steps.of(100_GiB), 16);
    // What lies between two that are named is not rounded to divisions.
    const PowerOfTwoDivisions gap = read("roundup_power2_divisions:[64:8,256:2,>:1]").roundup_power2_divisions;
    EXPECT_EQ(gap.of(3_MiB), 8);
    EXPECT_EQ(gap.of(127_MiB), 8);
    EXPECT_EQ(gap.of(200_MiB), 0);
    EXPECT_EQ(gap.of(300_MiB), 2);
    EXPECT_EQ(gap.of(512_MiB), 1);
    // Intervals end at 2^15 MiB = 32 GiB.
    EXPECT_EQ(read("roundup_power2_divisions:[65536:4]").roundup_power2_divisions.of(32_GiB), 4);
}

TEST(AllocatorConfig, NamesWhatSaysNothingAboutDeviceMemory) {
    const auto parsed = parse_allocator_config(
        "release_lock_on_cudamalloc:True,pinned_use_cuda_host_register:True,pinned_num_register_threads:8,"
        "pinned_use_background_threads:True,pinned_reserve_segment_size_mb:64,expandable_segments:True");
    const auto& read = std::get<ParsedAllocatorConfig>(parsed);
    const std::vector<std::string> ignored = {"release_lock_on_cudamalloc", "pinned_use_cuda_host_register",
                                              "pinned_num_register_threads", "pinned_use_background_threads",
                                              "pinned_reserve_segment_size_mb"};
    EXPECT_EQ(read.without_effect, ignored);
    EXPECT_EQ(read.config, AllocatorConfig{.expandable_segments = true});
}

TEST(AllocatorConfig, RefusesTheAllocatorOfCuda) {
    const AllocatorConfigError error = error_of("expandable_segments:True,backend:cudaMallocAsync");
    EXPECT_EQ(error.position, 33U);  // behind the second colon: 24 + 1 + 8
    EXPECT_NE(error.message.find("cudaMallocAsync is not supported"), std::string::npos);
    EXPECT_EQ(error_of("backend:other").position, 8U);
}

TEST(AllocatorConfig, PointsAtWhatItCannotRead) {
    EXPECT_EQ(error_of("expandable_segment:True").hint, "did you mean 'expandable_segments'?");
    EXPECT_EQ(error_of("foo:1").position, 0U);
    EXPECT_EQ(error_of("expandable_segments").position, 19U);
    EXPECT_EQ(error_of("expandable_segments:").position, 20U);
    EXPECT_EQ(error_of("expandable_segments:,").position, 20U);
    EXPECT_EQ(error_of("expandable_segments:true").hint, "write True or False");
    EXPECT_EQ(error_of("max_split_size_mb:512MB").hint, "write 512");
    EXPECT_EQ(error_of("max_split_size_mb:-1").position, 18U);
    EXPECT_EQ(error_of("max_split_size_mb:64;expandable_segments:True").position, 18U);
    EXPECT_EQ(error_of("max_split_size_mb:64:expandable_segments:True").position, 20U);
    EXPECT_EQ(error_of("garbage_collection_threshold:1.0").position, 29U);
    EXPECT_EQ(error_of("garbage_collection_threshold:0").position, 29U);
    EXPECT_EQ(error_of("per_process_memory_fraction:1.5").position, 28U);
    EXPECT_EQ(error_of("roundup_power2_divisions:3").position, 25U);
    EXPECT_EQ(error_of("roundup_power2_divisions:[3:4]").position, 26U);
    EXPECT_EQ(error_of("roundup_power2_divisions:[4:3]").position, 28U);
    EXPECT_EQ(error_of("roundup_power2_divisions:[256:4").position, 31U);
    EXPECT_EQ(error_of("roundup_power2_divisions:[256:4 512:8]").position, 30U);
    EXPECT_EQ(error_of("pinned_num_register_threads:256").position, 28U);
}

TEST(AllocatorConfig, CutsOffSizesThatNoDeviceHas) {
    EXPECT_TRUE(read("max_split_size_mb:9223372036854775807").max_split_size > 1_GiB);
    EXPECT_EQ(error_of("max_split_size_mb:9223372036854775808").position, 18U);
}

}  // namespace
}  // namespace stowage::memory
