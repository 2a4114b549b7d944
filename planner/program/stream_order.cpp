#include "planner/program/stream_order.hpp"

#include <algorithm>

namespace stowage::program {

void StreamOrder::wait(Stream waiting, const Clock& other) {
    Clock& own = clocks_[index(waiting)];
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = std::max(own[i], other[i]);
}

/// What the host issues from here on begins later.
void StreamOrder::host_waits(const Clock& other) {
    for (int i = 0; i < kStreamCount; ++i) wait(static_cast<Stream>(i), other);
}

void StreamOrder::join_all() {
    Clock all{};
    for (int i = 0; i < kStreamCount; ++i) all[static_cast<std::size_t>(i)] = place(static_cast<Stream>(i));
    clocks_.fill(all);
}

void StreamOrder::issue(const Operation& operation, std::uint32_t event) {
    switch (operation.kind) {
        case OperationKind::compute:
        case OperationKind::copy:
        case OperationKind::collective:
        case OperationKind::peer_transfer: work(operation.stream); break;
        case OperationKind::event_record: recorded_.at(event) = clock(operation.stream); break;
        case OperationKind::event_wait: wait(operation.stream, Clock{recorded_.at(event)}); break;
        case OperationKind::stream_wait: wait(operation.stream, Clock{clock(operation.other)}); break;
        case OperationKind::stream_sync: host_waits(Clock{clock(operation.stream)}); break;
        case OperationKind::graph_launch:
            recorded_.at(event) = clock(operation.stream);
            work(operation.stream);
            break;
        case OperationKind::device_sync:
        case OperationKind::graph_begin:
        case OperationKind::graph_end: join_all(); break;
        case OperationKind::allocate:
        case OperationKind::free:
        case OperationKind::record_stream:
        case OperationKind::pinned_acquire:
        case OperationKind::pinned_release:
        case OperationKind::empty_cache: break;
    }
}

}  // namespace stowage::program
