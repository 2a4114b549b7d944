#pragma once

#include <array>
#include <cstdint>

#include "scenarios/types/enum_names.hpp"

namespace stowage::program {

/// The CUDA streams of one rank. Each is a FIFO; NCCL gives every process group a stream of its own.
enum class Stream : std::uint8_t {
    main,
    d2h,                     ///< the offload manager's device-to-host stream
    h2d,                     ///< its host-to-device stream
    communication,           ///< tensor- and expert-parallel collectives
    gradient_communication,  ///< data-parallel collectives
    send_forward,            ///< transfers between pipeline neighbours: one stream for each way a tensor can go
    receive_forward,
    send_backward,
    receive_backward,
    graph,      ///< the manager's stream for graphs with copies in them
    graph_d2h,  ///< branches of the graph that runs there
    graph_h2d,
    capture,  ///< where graphs are captured: nothing runs on it, but memory belongs to it
};
inline constexpr int kStreamCount = 13;
constexpr std::size_t index(Stream stream) { return static_cast<std::size_t>(stream); }

/// The names that timelines, traces and reports use.
constexpr std::string_view name_of(Stream stream) {
    constexpr std::array<std::string_view, kStreamCount> names{"main",
                                                               "d2h",
                                                               "h2d",
                                                               "communication",
                                                               "gradient_communication",
                                                               "send_forward",
                                                               "receive_forward",
                                                               "send_backward",
                                                               "receive_backward",
                                                               "graph",
                                                               "graph_d2h",
                                                               "graph_h2d",
                                                               "capture"};
    return names[index(stream)];
}

}  // namespace stowage::program
