#pragma once

// What a recorder records: a set of kinds, since each costs something.
//
// Tested by: tests/profiler/cupti/record_kinds_test.cpp.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace stowage::profiler {

enum class RecordKind : std::uint8_t {
    operations,        ///< what was pushed when something was issued (external correlation)
    kernels,           ///< one by one, those of graphs too
    copies,            ///< between host and device, and within a device
    peer_copies,       ///< between devices
    memsets,           ///< of device memory
    allocations,       ///< of device, pinned and managed memory, and their frees
    pools,             ///< pools of stream-ordered memory: made, destroyed, trimmed
    events,            ///< CUDA events recorded
    synchronizations,  ///< waits of the host, and of streams for events
    runtime_calls,     ///< of the host into the CUDA runtime: what launches cost
    driver_calls,      ///< of the host into the driver
    ranges,            ///< NVTX ranges and marks
    graph_nodes,       ///< when, and by which thread, each node of a graph was captured
};
inline constexpr std::size_t kRecordKindCount = 13;

/// As `RecordKind` has it.
std::string_view name_of(RecordKind kind);

/// A set of kinds.
class RecordKinds {
public:
    constexpr RecordKinds() = default;
    constexpr RecordKinds(std::initializer_list<RecordKind> kinds) {
        for (const RecordKind kind : kinds) bits_ |= bit(kind);
    }
    static constexpr RecordKinds all() {
        RecordKinds kinds;
        kinds.bits_ = (1U << kRecordKindCount) - 1;
        return kinds;
    }
    [[nodiscard]] constexpr bool has(RecordKind kind) const { return (bits_ & bit(kind)) != 0; }
    [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
    constexpr void insert(RecordKind kind) { bits_ |= bit(kind); }
    friend constexpr bool operator==(RecordKinds, RecordKinds) = default;

private:
    static constexpr std::uint32_t bit(RecordKind kind) { return 1U << static_cast<unsigned>(kind); }
    std::uint32_t bits_ = 0;
};

/// What times the operations of a program: activities, and under what they were issued.
inline constexpr RecordKinds kOperationKinds = {RecordKind::operations, RecordKind::kernels, RecordKind::copies,
                                                RecordKind::memsets};

/// Names with commas between them, in the order of the enumeration; "all" for all.
std::string text_of(RecordKinds kinds);
/// The other way. Throws: std::invalid_argument, which names what is not known and what there is.
RecordKinds kinds_of(std::string_view text);

}  // namespace stowage::profiler
