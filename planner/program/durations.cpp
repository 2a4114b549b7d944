#include "planner/program/durations.hpp"

#include <algorithm>

#include "planner/program/kernel_times.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::program {
namespace {

/// Chance that none of a token's copies goes to a given `share` of the places: drawn without repetition.
double missed(const layers::Collective& collective, double share) {
    const auto places = static_cast<double>(collective.places);
    double chance = 1;
    for (std::int64_t drawn = 0; drawn < collective.copies; ++drawn) {
        const auto gone = static_cast<double>(drawn);
        chance *= std::max(0.0, places * (1 - share) - gone) / (places - gone);
    }
    return chance;
}

Bytes whole(double bytes) { return Bytes{static_cast<std::int64_t>(bytes)}; }

}  // namespace

Durations::Durations(const types::Hardware& hardware, const types::ParallelLayout& layout, double duty)
    : hardware_(hardware), layout_(layout), faster_(rates_at_duty(hardware.node.device, duty)) {}

Nanoseconds Durations::kernel(const layers::Kernel& kernel, layers::Phase phase) const {
    return kernel.measured ? *kernel.measured : estimate(kernel, phase);
}

Nanoseconds Durations::estimate(const layers::Kernel& kernel, layers::Phase phase) const {
    const types::Device& device = hardware_.node.device;
    switch (kernel.kind) {
        case types::KernelClass::gemm: return gemm_time(kernel, device, faster_.gemm);
        case types::KernelClass::attention: return attention_time(kernel, phase, device, faster_.attention);
        case types::KernelClass::memory_bound: break;
    }
    return types::transfer_time(kernel.traffic, device.memory_bandwidth) + device.kernel_overhead;
}

Durations::Group Durations::group(layers::CommGroup group) const {
    const std::int64_t tensor = layout_.tensor_model_parallel_size;
    const std::int64_t expert_tensor = layout_.expert_tensor_parallel_size;
    const std::int64_t experts = layout_.expert_model_parallel_size;
    const std::int64_t stages = layout_.pipeline_model_parallel_size;
    switch (group) {
        case layers::CommGroup::tensor: return {tensor, 1};
        case layers::CommGroup::context: return {layout_.context_parallel_size, tensor};
        case layers::CommGroup::expert_tensor: return {expert_tensor, 1};
        case layers::CommGroup::expert: return {experts, expert_tensor};
        case layers::CommGroup::expert_and_tensor: return {experts * expert_tensor, 1};
        case layers::CommGroup::dense_replicas: return {layout_.dense_replicas(), tensor};
        case layers::CommGroup::expert_replicas: return {layout_.expert_replicas(), expert_tensor * experts};
        case layers::CommGroup::embedding:  // the first stage and the last
            if (stages > 1) return {2, (stages - 1) * (layout_.world_size() / stages)};
            return {1, 1};
    }
    return {};
}

std::int64_t Durations::members_in_node(const Group& group) const {
    const std::int64_t gpus = hardware_.node.gpus_per_node;
    return std::clamp<std::int64_t>((gpus + group.stride - 1) / group.stride, 1, group.size);
}

Nanoseconds Durations::ring(const Group& group, double bytes) const {
    const types::Node& node = hardware_.node;
    const std::int64_t local = members_in_node(group);
    const double moved = bytes * static_cast<double>(group.size - 1) / static_cast<double>(group.size);
    if (local == group.size) return node.nvlink.latency + types::transfer_time(whole(moved), node.nvlink.rate);
    const double rate = std::min(node.nvlink.rate.rate, node.network.rate.rate * static_cast<double>(local));
    return node.network.latency + types::transfer_time(whole(moved), types::BytesPerSecond{rate});
}

Nanoseconds Durations::all_to_all(const Group& group, double bytes) const {
    const types::Node& node = hardware_.node;
    const std::int64_t local = members_in_node(group);
    const double share = bytes / static_cast<double>(group.size);
    const double inside = share * static_cast<double>(local - 1);
    const double outside = share * static_cast<double>(group.size - local);
    const Nanoseconds near = node.nvlink.latency + types::transfer_time(whole(inside), node.nvlink.rate);
    if (local == group.size) return near;
    return std::max(near, node.network.latency + types::transfer_time(whole(outside), node.network.rate));
}

/// Tokens go to the rank of the same place in each other node, which hands them on: what leaves a rank over NVLink is
/// what came to it from all nodes.
Nanoseconds Durations::token_exchange(const Group& group, const layers::Collective& collective) const {
    const types::Node& node = hardware_.node;
    const std::int64_t local = members_in_node(group);
    const double once = static_cast<double>(collective.bytes.count) / static_cast<double>(collective.copies);
    const double ranks = static_cast<double>(group.size);
    const double nodes = ranks / static_cast<double>(local);
    const double inside = once * (ranks - nodes) * (1 - missed(collective, 1 / ranks));
    const double outside = once * (nodes - 1) * (1 - missed(collective, 1 / nodes));
    const Nanoseconds near = node.nvlink.latency + types::transfer_time(whole(inside), node.nvlink.rate);
    if (local == group.size) return near;
    return std::max(near, node.network.latency + types::transfer_time(whole(outside), node.network.rate));
}

/// Every rank has one neighbour to send to; the slowest pair crosses nodes as soon as the group does.
Nanoseconds Durations::exchange(const Group& group, double bytes) const {
    const types::Node& node = hardware_.node;
    const types::Link& link = members_in_node(group) == group.size ? node.nvlink : node.network;
    return link.latency + types::transfer_time(whole(bytes), link.rate);
}

Durations::Group Durations::part_of(const Group& group, const layers::Collective& collective) {
    const std::int64_t members = group.size / collective.parts;
    if (collective.across_parts) return {collective.parts, group.stride * members};
    return {members, group.stride};
}

Nanoseconds Durations::collective(const layers::Collective& collective) const {
    const Group ranks = part_of(group(collective.group), collective);
    if (ranks.size <= 1) return Nanoseconds{0};
    const auto bytes = static_cast<double>(collective.bytes.count);
    switch (collective.kind) {
        case layers::CollectiveKind::all_reduce: return ring(ranks, 2 * bytes);
        case layers::CollectiveKind::all_gather:
        case layers::CollectiveKind::reduce_scatter: return ring(ranks, bytes);
        case layers::CollectiveKind::all_to_all:
            return collective.copies > 0 ? token_exchange(ranks, collective) : all_to_all(ranks, bytes);
        case layers::CollectiveKind::exchange: return exchange(ranks, bytes);
    }
    return Nanoseconds{0};
}

Nanoseconds Durations::peer_transfer(std::int64_t rank, Bytes bytes) const {
    const types::Node& node = hardware_.node;
    const std::int64_t stride = layout_.world_size() / layout_.pipeline_model_parallel_size;
    const std::int64_t next = (rank + 1) % layout_.pipeline_model_parallel_size;
    const std::int64_t first = std::min(rank, next) * stride;
    const std::int64_t last = (std::max(rank, next) + 1) * stride - 1;
    const bool one_node = first / node.gpus_per_node == last / node.gpus_per_node;
    const types::Link& link = one_node ? node.nvlink : node.network;
    return link.latency + types::transfer_time(bytes, link.rate);
}

Nanoseconds Durations::copy(Direction direction, Bytes bytes) const {
    const types::CopyEngines& engines = hardware_.node.copy;
    return (direction == Direction::device_to_host ? engines.device_to_host : engines.host_to_device).time(bytes);
}

Nanoseconds Durations::gather(Bytes bytes) const {
    const types::Device& device = hardware_.node.device;
    const bool known = device.strided_bandwidth.rate > 0;
    const types::BytesPerSecond rate = known ? device.strided_bandwidth : device.memory_bandwidth;
    return types::transfer_time(bytes + bytes, rate) + device.kernel_overhead;
}

}  // namespace stowage::program
