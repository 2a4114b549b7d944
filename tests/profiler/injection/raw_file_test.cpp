#include "profiler/injection/raw_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "scenarios/types/error.hpp"

namespace stowage::profiler {
namespace {

namespace fs = std::filesystem;
using namespace types::literals;
using namespace std::chrono_literals;

class RawFile : public testing::Test {
protected:
    void SetUp() override {
        const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
        folder_ =
            fs::temp_directory_path() / ("raw_file_" + std::string(test->name()) + "_" + std::to_string(getpid()));
        fs::create_directories(folder_);
        path_ = folder_ / "process.7";
    }
    void TearDown() override { fs::remove_all(folder_); }

    std::string contents() {
        std::ifstream file(path_, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    void set_contents(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
    std::string failure() {
        try {
            static_cast<void>(read_raw(path_));
        } catch (const types::InputError& error) {
            return error.what();
        }
        return "";
    }

    fs::path folder_;
    fs::path path_;
};

/// One of everything, every field another value.
InjectedProcess one_of_everything() {
    InjectedProcess process;
    process.process = 7;
    process.command = "python train.py";
    process.cupti = "/somewhere/libcupti.so.13";
    process.cupti_version = 130001;
    process.devices = {{.name = "NVIDIA H200", .driver = "13.0", .multiprocessors = 132, .memory = 140_GiB}};
    process.finished = true;
    process.failure = "";
    process.notes = {"one", "two"};
    Recording& recording = process.recording;
    recording.names = {"", "spin", "forward", "torch", "cudaLaunchKernel_v7000"};
    recording.activities = {{.kind = ActivityKind::copy,
                             .copy_kind = CopyKind::device_to_host,
                             .name = 1,
                             .start = 2ns,
                             .end = 3ns,
                             .bytes = 4_B,
                             .device = 5,
                             .context = 6,
                             .stream = 7,
                             .correlation = 8,
                             .graph = 9,
                             .graph_node = 10,
                             .issued_under = 11}};
    recording.node_operations = {{12, 13}, {14, 15}};
    recording.calls = {{.api = CallApi::driver,
                        .number = 1,
                        .name = 4,
                        .process = 3,
                        .thread = 4,
                        .correlation = 5,
                        .result = 6,
                        .start = 7ns,
                        .end = 8ns}};
    recording.allocations = {{.release = true,
                              .asynchronous = true,
                              .place = MemoryPlace::pinned,
                              .device = 1,
                              .context = 2,
                              .stream = 3,
                              .correlation = 4,
                              .name = 1,
                              .source = 2,
                              .time = 5ns,
                              .address = 6,
                              .bytes = 7_B,
                              .pool = 8,
                              .pool_size = 9_B,
                              .pool_used = 10_B}};
    recording.pools = {{.change = PoolChange::trimmed,
                        .managed = true,
                        .device = 1,
                        .correlation = 2,
                        .time = 3ns,
                        .address = 4,
                        .size = 5_B,
                        .used = 6_B,
                        .kept = 7_B}};
    recording.events = {{.event = 1, .device = 2, .context = 3, .stream = 4, .correlation = 5, .round = 6}};
    recording.waits = {{.kind = WaitKind::stream,
                        .context = 1,
                        .stream = 2,
                        .event = 3,
                        .correlation = 4,
                        .result = 5,
                        .round = 6,
                        .start = 7ns,
                        .end = 8ns}};
    recording.marks = {{.name = 2, .domain = 3, .process = 4, .thread = 5, .time = 6ns}};
    recording.ranges = {{.name = 2, .domain = 3, .process = 4, .thread = 5, .id = 6, .start = 7ns, .end = kStillOpen}};
    recording.nodes = {{.node = 1, .original = 2, .thread = 3, .made = 4ns}};
    recording.dropped = 1;
    recording.drops = {{1, 2, 3}};
    recording.buffers = 2;
    recording.untimed = 3;
    recording.foreign_buffers = 4;
    recording.missing_buffers = 5;
    recording.last_wait = 6ns;
    return process;
}

TEST_F(RawFile, ThereAndBack) {
    const InjectedProcess process = one_of_everything();
    write_raw(path_, process);
    const InjectedProcess back = read_raw(path_);
    EXPECT_EQ(back.process, 7U);
    EXPECT_EQ(back.command, process.command);
    EXPECT_EQ(back.cupti, process.cupti);
    EXPECT_EQ(back.cupti_version, 130001U);
    EXPECT_EQ(back.devices, process.devices);
    EXPECT_TRUE(back.finished);
    EXPECT_EQ(back.failure, "");
    EXPECT_EQ(back.notes, process.notes);
    const Recording& left = back.recording;
    const Recording& right = process.recording;
    EXPECT_EQ(left.names, right.names);
    EXPECT_EQ(left.activities, right.activities);
    EXPECT_EQ(left.node_operations, right.node_operations);
    EXPECT_EQ(left.calls, right.calls);
    EXPECT_EQ(left.allocations, right.allocations);
    EXPECT_EQ(left.pools, right.pools);
    EXPECT_EQ(left.events, right.events);
    EXPECT_EQ(left.waits, right.waits);
    EXPECT_EQ(left.marks, right.marks);
    EXPECT_EQ(left.ranges, right.ranges);
    EXPECT_EQ(left.nodes, right.nodes);
    EXPECT_EQ(left.dropped, 1U);
    EXPECT_EQ(left.drops, right.drops);
    EXPECT_EQ(left.buffers, 2U);
    EXPECT_EQ(left.untimed, 3U);
    EXPECT_EQ(left.foreign_buffers, 4U);
    EXPECT_EQ(left.missing_buffers, 5U);
    EXPECT_EQ(left.last_wait, 6ns);
}

TEST_F(RawFile, LeavesNothingElseInTheFolder) {
    write_raw(path_, one_of_everything());
    write_raw(path_, one_of_everything());  // as the end of a process does over its beginning
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(RawFile, IsTheSameForTheSameRecording) {
    write_raw(path_, one_of_everything());
    const std::string first = contents();
    write_raw(path_, one_of_everything());
    EXPECT_EQ(contents(), first);
}

TEST_F(RawFile, IsRefusedWhereverItIsCutShort) {
    write_raw(path_, one_of_everything());
    const std::string whole = contents();
    for (std::size_t size = 0; size < whole.size(); ++size) {
        set_contents(whole.substr(0, size));
        EXPECT_NE(failure(), "") << "at " << size;
    }
    set_contents(whole + "x");
    EXPECT_EQ(failure(), path_.string() + ": is broken: something follows byte " +
                             std::to_string(whole.size() - std::string("stowage-raw/1\n").size()));
}

// Each byte in turn is another: it may be read as something else, but never crashes or asks for all memory.
TEST_F(RawFile, SurvivesAnyWrongByte) {
    write_raw(path_, one_of_everything());
    const std::string whole = contents();
    for (std::size_t at = 0; at < whole.size(); ++at) {
        std::string wrong = whole;
        wrong[at] = static_cast<char>(~wrong[at]);
        set_contents(wrong);
        static_cast<void>(failure());
    }
}

TEST_F(RawFile, SaysWhatIsMissingOrForeign) {
    EXPECT_EQ(failure(), path_.string() + ": cannot be opened");
    set_contents("stowage-raw/2\n");
    EXPECT_EQ(failure(), path_.string() + ": is no recording of a process by this version of stowage");
}

TEST_F(RawFile, SaysWhyItCannotBeWritten) {
    try {
        write_raw(folder_ / "missing" / "process.7", {});
        FAIL();
    } catch (const types::Error& error) {
        EXPECT_NE(std::string(error.what()).find("opening failed: No such file or directory"), std::string::npos);
    }
}

}  // namespace
}  // namespace stowage::profiler
