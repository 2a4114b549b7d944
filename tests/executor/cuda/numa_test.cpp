#include "executor/cuda/numa.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.hpp"

namespace stowage::executor {
namespace {

using namespace types::literals;
namespace fs = std::filesystem;

void write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
}

// The runtime writes bus addresses in capitals, the system's folders are in small letters.
TEST(NumaNode, IsWhatTheSystemSaysOfThePciDevice) {
    const support::TemporaryFolder folder;
    write(folder.path() / "0000:1b:00.0/numa_node", "1\n");
    EXPECT_EQ(numa_node_of_pci("0000:1B:00.0", folder.path()), 1);
}

TEST(NumaNode, IsAbsentWhereTheSystemSaysMinusOneOrNothing) {
    const support::TemporaryFolder folder;
    write(folder.path() / "0000:1b:00.0/numa_node", "-1\n");
    EXPECT_EQ(numa_node_of_pci("0000:1b:00.0", folder.path()), std::nullopt);
    EXPECT_EQ(numa_node_of_pci("0000:2b:00.0", folder.path()), std::nullopt);
}

// meminfo counts in KiB: 2 GiB are 2,097,152 of them.
TEST(AvailableHostMemory, IsMemAvailableOfMeminfo) {
    const support::TemporaryFolder folder;
    write(folder.path() / "meminfo", "MemTotal:       99999999 kB\nMemFree:  7 kB\nMemAvailable:    2097152 kB\n");
    EXPECT_EQ(available_host_memory(folder.path() / "meminfo"), 2_GiB);
    EXPECT_EQ(available_host_memory(folder.path() / "absent"), std::nullopt);
}

TEST(PreferNumaNode, SaysWhyItDoesNotHold) {
    EXPECT_NE(PreferNumaNode(-1).refusal(), "");
    EXPECT_NE(PreferNumaNode(1 << 20).refusal(), "");
}

// Node 1000 is nowhere: the kernel refuses it, and the thread's policy is as before, so that node 0 works or is refused
// for want of rights only.
TEST(PreferNumaNode, LeavesThePolicyAloneIfRefused) {
    { EXPECT_NE(PreferNumaNode(1000).refusal(), ""); }
    const std::string refusal = PreferNumaNode(0).refusal();
    EXPECT_TRUE(refusal.empty() || refusal == "Operation not permitted" || refusal == "Function not implemented")
        << refusal;
}

}  // namespace
}  // namespace stowage::executor
