#include "scenarios/recording/event_table.hpp"

#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace stowage::recording {
namespace {

auto key_of(const EventClass& one) {
    return std::tuple(one.site, one.kind, one.stream, one.name, one.bytes.count, one.in_graph);
}
using Key = decltype(key_of(EventClass{}));

EventClass class_of(const Event& event) {
    return {event.site, event.kind, event.stream, event.name, event.bytes, event.in_graph};
}

[[noreturn]] void fail(const char* column, std::size_t row, const std::string& expected) {
    throw TableError(std::string(column) + ", row " + std::to_string(row) + ": expected " + expected);
}

/// Adds up a column of differences.
class Sum {
public:
    explicit Sum(const char* column) : column_(column) {}
    template <class Integer>
    Integer add(std::int64_t difference, std::size_t row) {
        constexpr auto kLeast = static_cast<std::int64_t>(std::numeric_limits<Integer>::min());
        constexpr auto kMost = static_cast<std::int64_t>(std::numeric_limits<Integer>::max());
        if (__builtin_add_overflow(value_, difference, &value_) || value_ < kLeast || value_ > kMost)
            fail(column_, row, "a sum from " + std::to_string(kLeast) + " to " + std::to_string(kMost));
        return static_cast<Integer>(value_);
    }

private:
    const char* column_;
    std::int64_t value_ = 0;
};

std::int64_t sum_of(std::int64_t left, std::int64_t right, const char* column, std::size_t row) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(left, right, &sum)) fail(column, row, "a time of less than 292 years");
    return sum;
}

std::size_t index_of(std::int64_t value, std::size_t size, const char* column, std::size_t row) {
    if (value < 0 || static_cast<std::size_t>(value) >= size)
        fail(column, row, "0 to " + std::to_string(size) + " without the last, found " + std::to_string(value));
    return static_cast<std::size_t>(value);
}

/// A column of what `value` says, or of its differences.
template <class Rows, class Value>
Column column_from(const Rows& rows, Value value, bool differences) {
    Column column;
    std::int64_t before = 0;
    for (const auto& row : rows) {
        const auto now = static_cast<std::int64_t>(value(row));
        column.push_back(differences ? now - before : now);
        before = now;
    }
    return column;
}

std::vector<Tensor> all_tensors(const std::vector<Group>& groups) {
    std::vector<Tensor> tensors;
    for (const Group& group : groups) tensors.insert(tensors.end(), group.tensors.begin(), group.tensors.end());
    return tensors;
}

std::vector<Tensor> tensors_of(const GroupTable& table) {
    std::vector<Tensor> tensors(table.storage.size());
    Sum storage("storage");
    Sum allocated("allocated_ns");
    Sum freed("freed_ns");
    for (std::size_t row = 0; row < tensors.size(); ++row) {
        Tensor& tensor = tensors[row];
        tensor.storage = storage.add<std::uint32_t>(table.storage[row], row);
        tensor.bytes = Bytes{table.bytes[row]};
        tensor.storage_bytes = Bytes{table.storage_bytes[row]};
        tensor.allocated = Nanoseconds{allocated.add<std::int64_t>(table.allocated_ns[row], row)};
        tensor.freed = Nanoseconds{freed.add<std::int64_t>(table.freed_ns[row], row)};
        tensor.offloaded = index_of(table.offloaded[row], 2, "offloaded", row) == 1;
        tensor.parameter = index_of(table.parameter[row], 2, "parameter", row) == 1;
    }
    return tensors;
}

}  // namespace

EventTable table_of(const std::vector<Event>& events) {
    EventTable table;
    std::map<Key, std::size_t> numbers;
    std::vector<Nanoseconds> last;  // duration by class
    Nanoseconds end{0};
    for (const Event& event : events) {
        const EventClass its_class = class_of(event);
        const auto [entry, is_new] = numbers.try_emplace(key_of(its_class), table.classes.size());
        if (is_new) {
            table.classes.push_back(its_class);
            last.emplace_back(0);
        }
        const std::size_t number = entry->second;
        table.event_class.push_back(static_cast<std::int64_t>(number));
        table.gap_ns.push_back((event.start - end).count());
        table.duration_ns.push_back((event.duration - last[number]).count());
        last[number] = event.duration;
        end = event.start + event.duration;
    }
    table.operation = column_from(
        events, [](const Event& event) { return event.operation; }, true);
    table.layer = column_from(
        events, [](const Event& event) { return event.layer; }, true);
    table.microbatch = column_from(
        events, [](const Event& event) { return event.microbatch; }, true);
    return table;
}

std::vector<Event> events_of(const EventTable& table) {
    std::vector<Event> events(table.event_class.size());
    std::vector<std::int64_t> last(table.classes.size(), 0);
    std::int64_t end = 0;
    Sum operation("operation");
    Sum layer("layer");
    Sum microbatch("microbatch");
    for (std::size_t row = 0; row < events.size(); ++row) {
        const std::size_t number = index_of(table.event_class[row], table.classes.size(), "class", row);
        const EventClass& its_class = table.classes[number];
        last[number] = sum_of(last[number], table.duration_ns[row], "duration_ns", row);
        const std::int64_t start = sum_of(end, table.gap_ns[row], "gap_ns", row);
        end = sum_of(start, last[number], "duration_ns", row);
        Event& event = events[row];
        event.site = its_class.site;
        event.kind = its_class.kind;
        event.stream = its_class.stream;
        event.name = its_class.name;
        event.bytes = its_class.bytes;
        event.in_graph = its_class.in_graph;
        event.operation = operation.add<std::uint32_t>(table.operation[row], row);
        event.layer = layer.add<std::int32_t>(table.layer[row], row);
        event.microbatch = microbatch.add<std::int32_t>(table.microbatch[row], row);
        event.start = Nanoseconds{start};
        event.duration = Nanoseconds{last[number]};
    }
    return events;
}

GroupTable table_of(const std::vector<Group>& groups) {
    GroupTable table;
    std::map<std::string, std::int64_t> numbers;
    for (const Group& group : groups) {
        const auto [entry, is_new] = numbers.try_emplace(group.module, std::ssize(table.modules));
        if (is_new) table.modules.push_back(group.module);
        table.module.push_back(entry->second);
    }
    table.layer = column_from(
        groups, [](const Group& group) { return group.layer; }, true);
    table.microbatch = column_from(
        groups, [](const Group& group) { return group.microbatch; }, true);
    table.chunk = column_from(
        groups, [](const Group& group) { return group.chunk; }, true);
    table.tensors = column_from(
        groups, [](const Group& group) { return group.tensors.size(); }, false);
    const std::vector<Tensor> tensors = all_tensors(groups);
    table.storage = column_from(
        tensors, [](const Tensor& tensor) { return tensor.storage; }, true);
    table.bytes = column_from(
        tensors, [](const Tensor& tensor) { return tensor.bytes.count; }, false);
    table.storage_bytes = column_from(
        tensors, [](const Tensor& tensor) { return tensor.storage_bytes.count; }, false);
    table.allocated_ns = column_from(
        tensors, [](const Tensor& tensor) { return tensor.allocated.count(); }, true);
    table.freed_ns = column_from(
        tensors, [](const Tensor& tensor) { return tensor.freed.count(); }, true);
    table.offloaded = column_from(
        tensors, [](const Tensor& tensor) { return tensor.offloaded; }, false);
    table.parameter = column_from(
        tensors, [](const Tensor& tensor) { return tensor.parameter; }, false);
    return table;
}

std::vector<Group> groups_of(const GroupTable& table) {
    const std::vector<Tensor> tensors = tensors_of(table);
    std::vector<Group> groups(table.module.size());
    Sum layer("layer");
    Sum microbatch("microbatch");
    Sum chunk("chunk");
    std::size_t taken = 0;
    for (std::size_t row = 0; row < groups.size(); ++row) {
        Group& group = groups[row];
        group.module = table.modules[index_of(table.module[row], table.modules.size(), "module", row)];
        group.layer = layer.add<std::int32_t>(table.layer[row], row);
        group.microbatch = microbatch.add<std::int32_t>(table.microbatch[row], row);
        group.chunk = chunk.add<std::int32_t>(table.chunk[row], row);
        const std::size_t count = index_of(table.tensors[row], tensors.size() - taken + 1, "tensors", row);
        group.tensors.assign(tensors.begin() + static_cast<std::ptrdiff_t>(taken),
                             tensors.begin() + static_cast<std::ptrdiff_t>(taken + count));
        taken += count;
    }
    if (taken != tensors.size())
        throw TableError("tensors: the groups have " + std::to_string(taken) + ", expected all " +
                         std::to_string(tensors.size()));
    return groups;
}

}  // namespace stowage::recording
