// Records of what the host did, by hand. Those of the device are in decode_test.cpp.

#include <gtest/gtest.h>

#include "profiler/cupti/decode.hpp"

namespace stowage::profiler {
namespace {

using namespace types::literals;
using namespace std::chrono_literals;

template <class Record>
Decoded decoded(const Record& record, RecordKinds keep = RecordKinds::all()) {
    Decoded into;
    into.keep = keep;
    decode(reinterpret_cast<const CUpti_Activity&>(record), into);
    return into;
}

CUpti_ActivityAPI call_record(CUpti_ActivityKind kind, std::uint32_t number) {
    CUpti_ActivityAPI record{};
    record.kind = kind;
    record.cbid = number;
    record.start = 100;
    record.end = 104;
    record.processId = 11;
    record.threadId = 12;
    record.correlationId = 77;
    record.returnValue = 2;
    return record;
}

TEST(DecodeCall, ReadsCallsOfTheRuntimeAndTheDriver) {
    const Call expected = {.api = CallApi::runtime,
                           .number = 211,
                           .name = 0,
                           .process = 11,
                           .thread = 12,
                           .correlation = 77,
                           .result = 2,
                           .start = 100ns,
                           .end = 104ns};
    EXPECT_EQ(decoded(call_record(CUPTI_ACTIVITY_KIND_RUNTIME, 211)).calls, std::vector<Call>{expected});
    Call driver = expected;
    driver.api = CallApi::driver;
    driver.number = 307;
    EXPECT_EQ(decoded(call_record(CUPTI_ACTIVITY_KIND_DRIVER, 307)).calls, std::vector<Call>{driver});
}

TEST(DecodeCall, KeepsOnlyTheApiThatIsWanted) {
    const RecordKinds runtime = {RecordKind::runtime_calls};
    EXPECT_EQ(decoded(call_record(CUPTI_ACTIVITY_KIND_RUNTIME, 211), runtime).calls.size(), 1U);
    EXPECT_TRUE(decoded(call_record(CUPTI_ACTIVITY_KIND_DRIVER, 307), runtime).calls.empty());
}

TEST(DecodeCall, CountsWhatCuptiCouldNotTimeIfItIsWanted) {
    CUpti_ActivityAPI record = call_record(CUPTI_ACTIVITY_KIND_RUNTIME, 211);
    record.start = record.end = 0;
    EXPECT_EQ(decoded(record).untimed, 1U);
    EXPECT_TRUE(decoded(record).calls.empty());
    EXPECT_EQ(decoded(record, kOperationKinds).untimed, 0U);
}

CUpti_ActivityMemory4 memory_record() {
    CUpti_ActivityMemory4 record{};
    record.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
    record.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
    record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    record.correlationId = 5;
    record.address = 0x7f0000000000;
    record.bytes = 20 << 20;
    record.timestamp = 900;
    record.deviceId = 1;
    record.contextId = 2;
    record.streamId = CUPTI_INVALID_STREAM_ID;
    record.source = "libtorch_cuda.so";
    return record;
}

TEST(DecodeAllocation, ReadsAnAllocation) {
    const Decoded into = decoded(memory_record());
    ASSERT_EQ(into.allocations.size(), 1U);
    const Allocation expected = {.release = false,
                                 .asynchronous = false,
                                 .place = MemoryPlace::device,
                                 .device = 1,
                                 .context = 2,
                                 .stream = kNotApplicable,
                                 .correlation = 5,
                                 .name = 0,
                                 .source = 1,
                                 .time = 900ns,
                                 .address = 0x7f0000000000,
                                 .bytes = 20_MiB};
    EXPECT_EQ(into.allocations[0], expected);
    EXPECT_EQ(into.names.names(), (std::vector<std::string>{"", "libtorch_cuda.so"}));
}

TEST(DecodeAllocation, ReadsAFreeIntoAPool) {
    CUpti_ActivityMemory4 record = memory_record();
    record.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
    record.isAsync = 1;
    record.streamId = 9;
    record.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
    record.memoryPoolConfig.address = 0x500;
    record.memoryPoolConfig.pool.size = 64 << 20;
    record.memoryPoolConfig.utilizedSize = 32 << 20;
    const Allocation allocation = decoded(record).allocations.at(0);
    EXPECT_TRUE(allocation.release);
    EXPECT_TRUE(allocation.asynchronous);
    EXPECT_EQ(allocation.stream, 9U);
    EXPECT_EQ(allocation.pool, 0x500U);
    EXPECT_EQ(allocation.pool_size, 64_MiB);
    EXPECT_EQ(allocation.pool_used, 32_MiB);
}

// There a process stands where the size would be.
TEST(DecodeAllocation, DoesNotTakeTheOwnerOfAnImportedPoolForItsSize) {
    CUpti_ActivityMemory4 record = memory_record();
    record.isAsync = 1;
    record.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_IMPORTED;
    record.memoryPoolConfig.pool.processId = 4711;
    EXPECT_EQ(decoded(record).allocations.at(0).pool_size, 0_B);
}

TEST(DecodeAllocation, KnowsWhereMemoryIs) {
    CUpti_ActivityMemory4 record = memory_record();
    const auto place_of = [&](CUpti_ActivityMemoryKind kind) {
        record.memoryKind = kind;
        return decoded(record).allocations.at(0).place;
    };
    EXPECT_EQ(place_of(CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN), MemoryPlace::unknown);
    EXPECT_EQ(place_of(CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE), MemoryPlace::pageable);
    EXPECT_EQ(place_of(CUPTI_ACTIVITY_MEMORY_KIND_PINNED), MemoryPlace::pinned);
    EXPECT_EQ(place_of(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC), MemoryPlace::device);
    EXPECT_EQ(place_of(CUPTI_ACTIVITY_MEMORY_KIND_MANAGED), MemoryPlace::managed);
    EXPECT_EQ(place_of(CUPTI_ACTIVITY_MEMORY_KIND_ARRAY), MemoryPlace::other);
}

TEST(DecodePool, ReadsWhatHappenedToAPool) {
    CUpti_ActivityMemoryPool3 record{};
    record.kind = CUPTI_ACTIVITY_KIND_MEMORY_POOL;
    record.memoryPoolOperationType = CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED;
    record.correlationId = 6;
    record.deviceId = 1;
    record.minBytesToKeep = 1024;
    record.address = 0x500;
    record.size = 4096;
    record.utilizedSize = 2048;
    record.timestamp = 44;
    const PoolEvent expected = {.change = PoolChange::trimmed,
                                .managed = false,
                                .device = 1,
                                .correlation = 6,
                                .time = 44ns,
                                .address = 0x500,
                                .size = 4_KiB,
                                .used = 2_KiB,
                                .kept = 1_KiB};
    EXPECT_EQ(decoded(record).pools, std::vector<PoolEvent>{expected});
    record.memoryPoolOperationType = CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED;
    EXPECT_EQ(decoded(record).pools.at(0).change, PoolChange::made);
    EXPECT_EQ(decoded(record).pools.at(0).kept, 0_B);  // says something only of trimming
    record.memoryPoolOperationType = CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED;
    EXPECT_EQ(decoded(record).pools.at(0).change, PoolChange::destroyed);
}

TEST(DecodeEvent, ReadsARecordedEvent) {
    CUpti_ActivityCudaEvent2 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CUDA_EVENT;
    record.eventId = 3;
    record.deviceId = 1;
    record.contextId = 2;
    record.streamId = 13;
    record.correlationId = 88;
    record.cudaEventSyncId = 21;
    const EventRecord expected = {.event = 3, .device = 1, .context = 2, .stream = 13, .correlation = 88, .round = 21};
    EXPECT_EQ(decoded(record).events, std::vector<EventRecord>{expected});
}

TEST(DecodeWait, ReadsWaitsOfTheHostAndOfStreams) {
    CUpti_ActivitySynchronization2 record{};
    record.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
    record.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;
    record.start = 10;
    record.end = 12;
    record.correlationId = 89;
    record.contextId = 2;
    record.streamId = 14;
    record.cudaEventId = 3;
    record.cudaEventSyncId = 21;
    const Wait expected = {.kind = WaitKind::stream_for_event,
                           .context = 2,
                           .stream = 14,
                           .event = 3,
                           .correlation = 89,
                           .result = 0,
                           .round = 21,
                           .start = 10ns,
                           .end = 12ns};
    EXPECT_EQ(decoded(record).waits, std::vector<Wait>{expected});
    const auto kind_of = [&](CUpti_ActivitySynchronizationType type) {
        record.type = type;
        return decoded(record).waits.at(0).kind;
    };
    EXPECT_EQ(kind_of(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE), WaitKind::event);
    EXPECT_EQ(kind_of(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE), WaitKind::stream);
    EXPECT_EQ(kind_of(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE), WaitKind::context);
    EXPECT_EQ(kind_of(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_UNKNOWN), WaitKind::unknown);
    record.start = record.end = 0;
    EXPECT_EQ(decoded(record).untimed, 1U);
}

CUpti_ActivityMarker2 marker(CUpti_ActivityFlag flags, std::uint64_t time, const char* name, const char* domain) {
    CUpti_ActivityMarker2 record{};
    record.kind = CUPTI_ACTIVITY_KIND_MARKER;
    record.flags = flags;
    record.timestamp = time;
    record.id = 8;
    record.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD;
    record.objectId.pt.processId = 11;
    record.objectId.pt.threadId = 12;
    record.name = name;
    record.domain = domain;
    return record;
}

TEST(DecodeMarker, ReadsAMarkOfADomain) {
    const Decoded into = decoded(marker(CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, 50, "saved", "torch"));
    const NvtxMark expected = {.name = 1, .domain = 2, .process = 11, .thread = 12, .time = 50ns};
    EXPECT_EQ(into.marks, std::vector<NvtxMark>{expected});
    EXPECT_EQ(into.names.names(), (std::vector<std::string>{"", "saved", "torch"}));
}

TEST(DecodeMarker, ReadsTheStartOfARangeOfTheDefaultDomain) {
    const Decoded into = decoded(marker(CUPTI_ACTIVITY_FLAG_MARKER_START, 50, "forward", nullptr));
    ASSERT_EQ(into.edges.size(), 1U);
    const NvtxRange expected = {
        .name = 1, .domain = 0, .process = 11, .thread = 12, .id = 8, .start = 50ns, .end = kStillOpen};
    EXPECT_FALSE(into.edges[0].is_end);
    EXPECT_EQ(into.edges[0].range, expected);
}

TEST(DecodeMarker, ReadsTheEndOfARangeWhichHasNoName) {
    const Decoded into = decoded(marker(CUPTI_ACTIVITY_FLAG_MARKER_END, 60, nullptr, nullptr));
    ASSERT_EQ(into.edges.size(), 1U);
    EXPECT_TRUE(into.edges[0].is_end);
    EXPECT_EQ(into.edges[0].id, 8U);
    EXPECT_EQ(into.edges[0].range.end, 60ns);
}

TEST(DecodeMarker, DoesNotTakeAProcessForAThread) {
    CUpti_ActivityMarker2 record = marker(CUPTI_ACTIVITY_FLAG_MARKER_START, 50, "all", nullptr);
    record.objectKind = CUPTI_ACTIVITY_OBJECT_PROCESS;
    record.objectId.pt.threadId = 99;
    EXPECT_EQ(decoded(record).edges.at(0).range.thread, 0U);
    EXPECT_EQ(decoded(record).edges.at(0).range.process, 11U);
}

TEST(DecodeMarker, CountsThoseWithoutATimeAndPassesOverThoseOfLocks) {
    EXPECT_EQ(decoded(marker(CUPTI_ACTIVITY_FLAG_MARKER_START, 0, "x", nullptr)).untimed, 1U);
    const Decoded lock = decoded(marker(CUPTI_ACTIVITY_FLAG_MARKER_SYNC_ACQUIRE, 50, "x", nullptr));
    EXPECT_TRUE(lock.edges.empty());
    EXPECT_TRUE(lock.marks.empty());
    EXPECT_EQ(lock.untimed, 0U);
}

TEST(DecodeCopy, ReadsACopyBetweenDevices) {
    CUpti_ActivityMemcpyPtoP4 record{};
    record.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
    record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
    record.bytes = 4096;
    record.start = 1;
    record.end = 3;
    record.contextId = 2;
    record.correlationId = 9;
    const Activity activity = decoded(record).activities.at(0);
    EXPECT_EQ(activity.kind, ActivityKind::copy);
    EXPECT_EQ(activity.copy_kind, CopyKind::other);
    EXPECT_EQ(activity.bytes, 4_KiB);
    EXPECT_EQ(activity.context, 2U);
    EXPECT_EQ(activity.correlation, 9U);
}

TEST(DecodeOther, PassesOverKindsThatNobodyAskedFor) {
    CUpti_ActivityOverhead3 record{};
    record.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
    const Decoded into = decoded(record);
    EXPECT_EQ(into.untimed, 0U);
    EXPECT_TRUE(into.activities.empty() && into.calls.empty() && into.waits.empty());
}

// "libcudart" is the first name of the second part and the second of the whole.
TEST(Append, RenumbersNamesOfEveryKind) {
    Decoded whole = decoded(marker(CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, 50, "a", nullptr));
    CUpti_ActivityMemory4 memory = memory_record();
    memory.source = "libcudart";
    append(whole, decoded(memory));
    append(whole, decoded(marker(CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, 51, "b", "a")));
    append(whole, decoded(marker(CUPTI_ACTIVITY_FLAG_MARKER_START, 52, "b", "c")));
    EXPECT_EQ(whole.names.names(), (std::vector<std::string>{"", "a", "libcudart", "b", "c"}));
    EXPECT_EQ(whole.allocations.at(0).source, 2U);
    EXPECT_EQ(whole.marks.at(1).name, 3U);
    EXPECT_EQ(whole.marks.at(1).domain, 1U);
    EXPECT_EQ(whole.edges.at(0).range.name, 3U);
    EXPECT_EQ(whole.edges.at(0).range.domain, 4U);
}

}  // namespace
}  // namespace stowage::profiler
