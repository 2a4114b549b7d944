#include "reports/hardware_json.hpp"

#include <algorithm>
#include <utility>

namespace stowage::reports {
namespace {

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;

double gb_per_s(types::BytesPerSecond rate) { return rate.rate / kGiga; }
double tflop_per_s(types::FlopsPerSecond rate) { return rate.rate / kTera; }

Json attention_json(const types::AttentionLoss& loss) {
    return {{"start_keys", loss.start_keys}, {"tail_blocks", loss.tail_blocks}};
}

Json device_json(const types::Device& device) {
    Json json;
    if (!device.name.empty()) json["name"] = device.name;
    json["compute_capability"] = device.compute_capability;
    json["memory"] = device.memory.count;
    json["gemm_bf16_tflop_per_s"] = tflop_per_s(device.gemm_bf16);
    if (device.gemm_fp8.rate > 0) json["gemm_fp8_tflop_per_s"] = tflop_per_s(device.gemm_fp8);
    if (device.gemm_fp8_blockwise.rate > 0)
        json["gemm_fp8_blockwise_tflop_per_s"] = tflop_per_s(device.gemm_fp8_blockwise);
    json["gemm_ramp_us"] = file_microseconds(device.gemm_ramp);
    json["attention_forward_bf16_tflop_per_s"] = tflop_per_s(device.attention_forward_bf16);
    json["attention_backward_bf16_tflop_per_s"] = tflop_per_s(device.attention_backward_bf16);
    json["attention_forward"] = attention_json(device.attention_forward);
    json["attention_backward"] = attention_json(device.attention_backward);
    for (const types::HeadSizeRate& rate : device.attention_head_sizes)
        json["attention_head_sizes"].push_back(
            {{"head_size", rate.head_size}, {"forward", rate.forward}, {"backward", rate.backward}});
    for (const types::DutyRate& rate : device.rates_by_duty)
        json["rates_by_duty"].push_back({{"duty", rate.duty}, {"gemm", rate.gemm}, {"attention", rate.attention}});
    json["memory_bandwidth_gb_per_s"] = gb_per_s(device.memory_bandwidth);
    if (device.strided_bandwidth.rate > 0) json["strided_bandwidth_gb_per_s"] = gb_per_s(device.strided_bandwidth);
    json["kernel_overhead_us"] = file_microseconds(device.kernel_overhead);
    return json;
}

Json curve_json(const types::CopyCurve& curve) {
    Json points = Json::array();
    for (const types::CopyPoint& point : curve.points())
        points.push_back({{"size", point.size.count}, {"time_us", file_microseconds(point.time)}});
    return points;
}

Json copy_json(const types::CopyEngines& copy) {
    Json json;
    json["device_to_host"] = curve_json(copy.device_to_host);
    json["host_to_device"] = curve_json(copy.host_to_device);
    json["duplex_device_to_host"] = copy.duplex_device_to_host;
    json["duplex_host_to_device"] = copy.duplex_host_to_device;
    json["time_slice_us"] = file_microseconds(copy.time_slice);
    for (const auto& [kernel_class, name] : types::enum_names<types::KernelClass>()) {
        const types::Slowdown& slowdown = copy.slowdown[static_cast<std::size_t>(kernel_class)];
        json["slowdown"][std::string(name)] = {
            {"under_d2h", slowdown.under_d2h}, {"under_h2d", slowdown.under_h2d}, {"under_both", slowdown.under_both}};
    }
    return json;
}

Json host_json(const types::HostCosts& host) {
    Json json{{"kernel_launch_us", file_microseconds(host.kernel_launch)},
              {"framework_forward_us", file_microseconds(host.framework_forward)},
              {"framework_backward_us", file_microseconds(host.framework_backward)},
              {"copy_launch_us", file_microseconds(host.copy_launch)},
              {"event_call_us", file_microseconds(host.event_call)},
              {"synchronize_us", file_microseconds(host.synchronize)},
              {"device_allocation_call_us", file_microseconds(host.device_allocation_call)},
              {"pinned_allocation_us_per_gib", file_microseconds(host.pinned_allocation_per_gib)},
              {"launch_queue_depth", host.launch_queue_depth}};
    if (host.gemm_call.count() > 0) json["gemm_call_us"] = file_microseconds(host.gemm_call);
    if (host.attention_call.count() > 0) json["attention_call_us"] = file_microseconds(host.attention_call);
    if (host.memory_bandwidth.rate > 0) json["memory_bandwidth_gb_per_s"] = gb_per_s(host.memory_bandwidth);
    return json;
}

/// Empty where the file of the machine says nothing of graphs.
Json graph_json(const types::GraphCosts& graph) {
    Json json{{"launch_us", file_microseconds(graph.launch)},
              {"launch_per_node_us", file_microseconds(graph.launch_per_node)},
              {"launch_per_branch_us", file_microseconds(graph.launch_per_branch)},
              {"framework_forward_us", file_microseconds(graph.framework_forward)},
              {"framework_backward_us", file_microseconds(graph.framework_backward)},
              {"instantiate_per_node_us", file_microseconds(graph.instantiate_per_node)},
              {"node_overhead_us", file_microseconds(graph.node_overhead)},
              {"memory_per_graph", graph.memory_per_graph.count},
              {"memory_per_node", graph.memory_per_node.count},
              {"memory_per_branch", graph.memory_per_branch.count}};
    const bool costs = std::any_of(json.begin(), json.end(), [](const Json& cost) { return cost != 0; });
    if (!costs) return Json::object();
    if (graph.copy_device_to_host != 1) json["copy_device_to_host"] = graph.copy_device_to_host;
    if (graph.copy_host_to_device != 1) json["copy_host_to_device"] = graph.copy_host_to_device;
    return json;
}

Json link_json(const types::Link& link) {
    return {{"rate_gb_per_s", gb_per_s(link.rate)}, {"latency_us", file_microseconds(link.latency)}};
}

}  // namespace

Json hardware_json(const types::Node& node) {
    Json json;
    if (!node.name.empty()) json["name"] = node.name;
    json["gpus_per_node"] = node.gpus_per_node;
    json["host_memory"] = node.host_memory.count;
    json["device"] = device_json(node.device);
    json["copy"] = copy_json(node.copy);
    json["host"] = host_json(node.host);
    if (Json graph = graph_json(node.graph); !graph.empty()) json["graph"] = std::move(graph);
    json["nvlink"] = link_json(node.nvlink);
    json["network"] = link_json(node.network);
    return json;
}

}  // namespace stowage::reports
