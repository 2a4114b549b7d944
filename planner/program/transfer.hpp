#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "planner/program/stream.hpp"

namespace stowage::program {

/// What a rank does with one tensor that crosses to or from a pipeline neighbour.
enum class TransferKind : std::uint8_t { send_forward, receive_forward, send_backward, receive_backward };
inline constexpr int kTransferKinds = 4;
constexpr std::size_t index(TransferKind kind) { return static_cast<std::size_t>(kind); }

constexpr bool sends(TransferKind kind) {
    return kind == TransferKind::send_forward || kind == TransferKind::send_backward;
}
/// Whether the neighbour is the next rank (the first one, from the last) or the one before.
constexpr bool with_next(TransferKind kind) {
    return kind == TransferKind::send_forward || kind == TransferKind::receive_backward;
}
constexpr std::string_view name_of(TransferKind kind) {
    constexpr std::array<std::string_view, kTransferKinds> names{"send_forward", "receive_forward", "send_backward",
                                                                 "receive_backward"};
    return names[index(kind)];
}
constexpr Stream stream_of(TransferKind kind) {
    constexpr std::array<Stream, kTransferKinds> streams{Stream::send_forward, Stream::receive_forward,
                                                         Stream::send_backward, Stream::receive_backward};
    return streams[index(kind)];
}

}  // namespace stowage::program
