#include "profiler/cupti/record_kinds.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace stowage::profiler {
namespace {

constexpr std::array<std::string_view, kRecordKindCount> kNames = {
    "operations", "kernels",          "copies",        "peer_copies",  "memsets", "allocations", "pools",
    "events",     "synchronizations", "runtime_calls", "driver_calls", "ranges",  "graph_nodes"};
constexpr std::string_view kAll = "all";

std::string joined(RecordKinds kinds) {
    std::string text;
    for (std::size_t i = 0; i < kRecordKindCount; ++i) {
        if (!kinds.has(static_cast<RecordKind>(i))) continue;
        if (!text.empty()) text += ',';
        text += kNames.at(i);
    }
    return text;
}

RecordKind kind_of(std::string_view name) {
    const auto* const found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end())
        throw std::invalid_argument("'" + std::string(name) + "' is no kind of record; there are all, " +
                                    joined(RecordKinds::all()));
    return static_cast<RecordKind>(found - kNames.begin());
}

}  // namespace

std::string_view name_of(RecordKind kind) { return kNames.at(static_cast<std::size_t>(kind)); }

std::string text_of(RecordKinds kinds) { return kinds == RecordKinds::all() ? std::string(kAll) : joined(kinds); }

RecordKinds kinds_of(std::string_view text) {
    RecordKinds kinds;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(','), text.size());
        const std::string_view name = text.substr(0, end);
        if (name == kAll)
            kinds = RecordKinds::all();
        else
            kinds.insert(kind_of(name));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return kinds;
}

}  // namespace stowage::profiler
