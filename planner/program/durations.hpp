#pragma once

#include "planner/layers/layer_script.hpp"
#include "planner/program/operation.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::program {

/// How long operations take alone, on the hardware and layout of a scenario. A kernel that a recording has a time for
/// (MeasuredDurations) takes that instead.
///
/// Kernels: traffic / memory bandwidth + fixed device overhead; GEMMs and attention as in kernel_times.hpp.
/// Collectives over n ranks of a tensor of B bytes, on rings: all_gather and reduce_scatter (n-1)/n B / rate,
/// all_reduce twice that, all_to_all (n-1)/n of what the rank sends. The rate is NVLink's when the group lies in one
/// node, otherwise that of the network ports which the group's members on one node have together, at most NVLink's; an
/// all_to_all sends only what leaves the node over the network, while the rest moves over NVLink beside it; that of the
/// flex dispatcher crosses to a node once for all experts of a token there (deepseek-ai/DeepEP, csrc/kernels/internode
/// and branch hybrid-ep), for experts chosen evenly. Source: the
/// bandwidth terms of Thakur, Rabenseifner, Gropp 2005, section 4, which NCCL's bus-bandwidth figures are defined by.
class Durations {
public:
    /// Keeps references: hardware and layout must outlive it. `duty`: for how much of the time GEMMs and attention
    /// run, which their rates follow.
    Durations(const types::Hardware& hardware, const types::ParallelLayout& layout, double duty = 1);

    [[nodiscard]] Nanoseconds kernel(const layers::Kernel& kernel, layers::Phase phase) const;
    /// The same from the hardware alone, whatever was measured.
    [[nodiscard]] Nanoseconds estimate(const layers::Kernel& kernel, layers::Phase phase) const;
    [[nodiscard]] Nanoseconds collective(const layers::Collective& collective) const;
    /// Between pipeline rank `rank` and the next one (the first, from the last): NVLink if the two lie in one node,
    /// else the network.
    [[nodiscard]] Nanoseconds peer_transfer(std::int64_t rank, Bytes bytes) const;
    [[nodiscard]] Nanoseconds copy(Direction direction, Bytes bytes) const;
    /// Gathering a strided view into contiguous memory: read and write once.
    [[nodiscard]] Nanoseconds gather(Bytes bytes) const;

private:
    struct Group {
        std::int64_t size = 1;    ///< ranks
        std::int64_t stride = 1;  ///< between neighbouring ranks of the group
    };
    [[nodiscard]] Group group(layers::CommGroup group) const;
    /// The ranks that a collective runs over, of those of its group.
    [[nodiscard]] static Group part_of(const Group& group, const layers::Collective& collective);
    [[nodiscard]] std::int64_t members_in_node(const Group& group) const;
    [[nodiscard]] Nanoseconds ring(const Group& group, double bytes) const;
    [[nodiscard]] Nanoseconds exchange(const Group& group, double bytes) const;
    [[nodiscard]] Nanoseconds all_to_all(const Group& group, double bytes) const;
    [[nodiscard]] Nanoseconds token_exchange(const Group& group, const layers::Collective& collective) const;

    const types::Hardware& hardware_;
    const types::ParallelLayout& layout_;
    types::DutyRate faster_;  ///< than at full duty
};

}  // namespace stowage::program
