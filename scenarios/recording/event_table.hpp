#pragma once

// Events and groups as columns of small integers, and back.
//
// Tested by: tests/scenarios/recording/event_table_test.cpp.

#include <stdexcept>
#include <string>
#include <vector>

#include "scenarios/recording/integer_columns.hpp"
#include "scenarios/recording/recording.hpp"

namespace stowage::recording {

/// What an integer of a table breaks: "class 7: expected 0 to 3".
class TableError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// What many events have in common.
struct EventClass {
    std::uint32_t site = 0;
    EventKind kind{};
    std::uint32_t stream = 0;
    std::uint32_t name = 0;
    Bytes bytes;
    bool in_graph = false;
    friend bool operator==(const EventClass&, const EventClass&) = default;
};

/// One integer a row and column. Worked example, two kernels of one class, at 10 to 50 us (operation 4) and 53 to 92 us
/// (operation 5): event_class 0 0, operation 4 1, gap_ns 10000 3000, duration_ns 40000 -1000.
struct EventTable {
    std::vector<EventClass> classes;
    Column event_class;
    Column operation;    ///< difference to the row before
    Column layer;        ///< the same; before the first it is 0
    Column microbatch;   ///< the same
    Column gap_ns;       ///< from the end of the row before to the start
    Column duration_ns;  ///< difference to the last row of the same class
};

EventTable table_of(const std::vector<Event>& events);
/// Throws: TableError if a value does not fit, or there is no such class. Columns are of one length.
std::vector<Event> events_of(const EventTable& table);

/// One row a group, then one a tensor, group by group.
struct GroupTable {
    std::vector<std::string> modules;
    Column module;
    Column layer;       ///< as the following, differences to the row before
    Column microbatch;  ///< the same
    Column chunk;       ///< the same
    Column tensors;     ///< how many
    Column storage;     ///< difference to the row before
    Column bytes;
    Column storage_bytes;
    Column allocated_ns;  ///< difference to the row before
    Column freed_ns;      ///< the same
    Column offloaded;     ///< 0 or 1
    Column parameter;     ///< 0 or 1
};

GroupTable table_of(const std::vector<Group>& groups);
/// Throws: TableError. Columns of groups are of one length, and so are those of tensors.
std::vector<Group> groups_of(const GroupTable& table);

}  // namespace stowage::recording
