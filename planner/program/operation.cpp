#include "planner/program/operation.hpp"

namespace stowage::program {

std::string_view name_of(OperationKind kind) {
    static constexpr std::string_view names[] = {
        "compute",     "copy",        "collective",  "peer_transfer", "event_record",   "event_wait",
        "stream_wait", "allocate",    "free",        "record_stream", "pinned_acquire", "pinned_release",
        "stream_sync", "device_sync", "graph_begin", "graph_end",     "graph_launch",   "empty_cache"};
    return names[static_cast<std::size_t>(kind)];
}

}  // namespace stowage::program
