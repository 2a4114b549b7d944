#include "planner/layers/states_host.hpp"

#include <algorithm>

namespace stowage::layers {
namespace {

using types::Nanoseconds;

constexpr std::int64_t kAdamTraffic = 28;

/// Moves whole parameters of one kind until the fraction is reached.
void take(HostShare& share, const std::vector<ParameterBuffer>& buffers, ParameterKind kind, double fraction) {
    std::int64_t owned = 0;
    for (const ParameterBuffer& buffer : buffers)
        for (const ShardPiece& piece : buffer.pieces) owned += buffer.kind == kind ? piece.elements : 0;
    const double wanted = fraction * static_cast<double>(owned);
    std::int64_t moved = 0;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        if (buffers[i].kind != kind) continue;
        for (auto piece = buffers[i].pieces.rbegin(); piece != buffers[i].pieces.rend(); ++piece) {
            if (static_cast<double>(moved) >= wanted) return;
            share.pieces.push_back(*piece);
            share.elements[i] += piece->elements;
            moved += piece->elements;
        }
    }
}

}  // namespace

std::int64_t largest_piece(const HostShare& share) {
    std::int64_t largest = 0;
    for (const ShardPiece& piece : share.pieces) largest = std::max(largest, piece.elements);
    return largest;
}

HostShare host_share(const types::Scenario& scenario, const std::vector<ParameterBuffer>& buffers) {
    HostShare share;
    share.elements.resize(buffers.size());
    if (!scenario.optimizer.optimizer_cpu_offload) return share;
    for (ParameterKind kind : {ParameterKind::dense, ParameterKind::expert})
        take(share, buffers, kind, scenario.optimizer.optimizer_offload_fraction);
    return share;
}

Nanoseconds host_update_time(const types::Scenario& scenario, const HostShare& share) {
    const types::Node& node = scenario.hardware.node;
    const types::BytesPerSecond rate{node.host.memory_bandwidth.rate / std::max(node.gpus_per_node, 1)};
    Nanoseconds copied{0};
    Nanoseconds updated{0};
    Nanoseconds returned{0};
    for (const ShardPiece& piece : share.pieces) {
        copied += node.copy.device_to_host.time(Bytes{4 * piece.elements});
        updated = std::max(updated, copied) + types::transfer_time(Bytes{kAdamTraffic * piece.elements}, rate);
        returned = std::max(returned, updated) + node.copy.host_to_device.time(Bytes{4 * piece.elements});
    }
    if (scenario.optimizer.overlap_cpu_optimizer_d2h_h2d) return returned;
    Nanoseconds total{0};
    for (const ShardPiece& piece : share.pieces)
        total += node.copy.device_to_host.time(Bytes{4 * piece.elements}) +
                 types::transfer_time(Bytes{kAdamTraffic * piece.elements}, rate) +
                 node.copy.host_to_device.time(Bytes{4 * piece.elements});
    return total;
}

}  // namespace stowage::layers
