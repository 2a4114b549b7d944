#include <algorithm>
#include <optional>
#include <string>

#include "scenarios/reader/drafts.hpp"

namespace stowage::reader {
namespace {

constexpr NumberRange kShare{0.01, 1};
constexpr NumberRange kFraction{0, 10};
constexpr NumberRange kMicroseconds{0, 1e7};
constexpr NumberRange kCopyMicroseconds{1e-3, 1e9};

void describe_sources(Fields& fields) {
    fields.remark("source");
    fields.remark("sources");
}

constexpr NumberRange kTail{0, 1e6};
constexpr NumberRange kHeadSize{1, 4096};
constexpr NumberRange kRateShare{0.01, 10};
constexpr NumberRange kDuty{0.01, 0.99};
constexpr NumberRange kGain{1, 10};

void describe_attention(Fields& fields, std::string_view name, types::AttentionLoss& loss) {
    fields.group({name, "what attention loses where there is little of it; left out: nothing"}, [&](Fields& inside) {
        describe_sources(inside);
        inside.number({"start_keys", "a row's start costs as much as so many keys", true}, loss.start_keys, kTail);
        inside.number({"tail_blocks", "a causal mask's uneven blocks cost as much as so many more", true},
                      loss.tail_blocks, kTail);
    });
}

void describe_head_sizes(Fields& fields, std::vector<types::HeadSizeRate>& rates) {
    const Key key{"attention_head_sizes", "rates of other head sizes, as shares of that of 128"};
    std::vector<types::HeadSizeRate> read;
    const auto describe_rate = [&](Fields& inside) {
        types::HeadSizeRate rate;
        inside.number({"head_size", "mean of query's and value's", true}, rate.head_size, kHeadSize);
        inside.number({"forward", "share of the rate of heads of 128", true}, rate.forward, kRateShare);
        inside.number({"backward", "share of the rate of heads of 128", true}, rate.backward, kRateShare);
        read.push_back(rate);
    };
    fields.groups(key, describe_rate, [&] {
        const auto falls = [](const auto& a, const auto& b) { return a.head_size >= b.head_size; };
        if (std::adjacent_find(read.begin(), read.end(), falls) != read.end())
            fields.problem(key.name, "found head sizes that do not rise, expected rising ones");
        rates = read;
    });
}

/// Empty if the list is one: faster where there is less of it, and yet not more done in all.
std::string disorder(std::vector<types::DutyRate> rates) {
    rates.emplace_back();
    const auto place = [&](std::size_t i) {
        return i + 1 < rates.size() ? "in point " + std::to_string(i) : std::string("at full duty");
    };
    for (std::size_t i = 1; i < rates.size(); ++i) {
        const types::DutyRate& lower = rates[i - 1];
        const types::DutyRate& upper = rates[i];
        if (lower.duty >= upper.duty) return "found duties that do not rise, expected rising ones";
        if (lower.gemm < upper.gemm || lower.attention < upper.attention)
            return "found a higher rate " + place(i) + " than " + place(i - 1) +
                   ", expected rates that fall with the duty";
        const bool more = lower.duty * lower.gemm > upper.duty * upper.gemm ||
                          lower.duty * lower.attention > upper.duty * upper.attention;
        if (more) return "found more done " + place(i - 1) + " than " + place(i) + ", expected duty times rate to rise";
    }
    return {};
}

void describe_rates_by_duty(Fields& fields, std::vector<types::DutyRate>& rates) {
    const Key key{"rates_by_duty",
                  "what GEMMs and attention gain where they run for part of the time; left out: nothing"};
    std::vector<types::DutyRate> read;
    const auto describe_rate = [&](Fields& inside) {
        types::DutyRate rate;
        std::optional<double> attention;
        inside.number({"duty", "share of the time that GEMMs or attention run", true}, rate.duty, kDuty);
        inside.number({"gemm", "their rate, as a multiple of the device's", true}, rate.gemm, kGain);
        inside.optional_number({"attention", "the same of attention"}, attention, kGain, "as gemm");
        rate.attention = attention.value_or(rate.gemm);
        read.push_back(rate);
    };
    fields.groups(key, describe_rate, [&] {
        const std::string problem = disorder(read);
        if (problem.empty())
            rates = read;
        else
            fields.problem(key.name, problem);
    });
}

void describe_device(Fields& fields, types::Device& device) {
    describe_sources(fields);
    fields.text({"name", "what the maker calls it"}, device.name);
    std::int64_t capability = device.compute_capability;
    fields.count({"compute_capability", "90 is 9.0", true}, capability, IntegerRange{50, 200});
    device.compute_capability = static_cast<int>(capability);
    fields.size({"memory", "usable by the caching allocator", true}, device.memory);
    fields.tflop_per_s({"gemm_bf16_tflop_per_s", "sustained in training, writing the result not counted", true},
                       device.gemm_bf16);
    fields.tflop_per_s({"gemm_fp8_tflop_per_s", "the same of FP8 operands; left out: no FP8"}, device.gemm_fp8);
    fields.tflop_per_s({"gemm_fp8_blockwise_tflop_per_s", "the same with a scale a block; left out: as the former"},
                       device.gemm_fp8_blockwise);
    fields.microseconds({"gemm_ramp_us", "a GEMM's start and end, beside kernel_overhead_us"}, device.gemm_ramp,
                        kMicroseconds);
    fields.tflop_per_s({"attention_forward_bf16_tflop_per_s", "sustained in training, heads of 128", true},
                       device.attention_forward_bf16);
    fields.tflop_per_s({"attention_backward_bf16_tflop_per_s", "sustained in training, heads of 128", true},
                       device.attention_backward_bf16);
    describe_attention(fields, "attention_forward", device.attention_forward);
    describe_attention(fields, "attention_backward", device.attention_backward);
    describe_head_sizes(fields, device.attention_head_sizes);
    describe_rates_by_duty(fields, device.rates_by_duty);
    fields.gb_per_s({"memory_bandwidth_gb_per_s", "bytes read and written by a vectorised kernel", true},
                    device.memory_bandwidth);
    fields.gb_per_s({"strided_bandwidth_gb_per_s", "the same of a kernel that gathers a strided view"},
                    device.strided_bandwidth);
    fields.microseconds({"kernel_overhead_us", "fixed device time of any kernel"}, device.kernel_overhead,
                        kMicroseconds);
}

std::string disorder(const std::vector<types::CopyPoint>& points) {
    if (points.size() < 2) return "found fewer than two points, expected at least two";
    for (std::size_t i = 1; i < points.size(); ++i)
        if (points[i].size <= points[i - 1].size || points[i].time <= points[i - 1].time)
            return "point " + std::to_string(i) + " does not lie above point " + std::to_string(i - 1) +
                   ", expected sizes and times that rise";
    return {};
}

void describe_curve(Fields& fields, const Key& key, types::CopyCurve& curve) {
    std::vector<types::CopyPoint> points;
    const auto describe_point = [&](Fields& point) {
        types::CopyPoint read;
        point.size({"size", "bytes of one copy", true}, read.size);
        point.microseconds({"time_us", "its time alone on the engine", true}, read.time, kCopyMicroseconds);
        points.push_back(read);
    };
    fields.groups(key, describe_point, [&] {
        const std::string problem = disorder(points);
        if (problem.empty())
            curve = types::CopyCurve(points);
        else
            fields.problem(key.name, problem);
    });
}

void describe_slowdown(Fields& fields, std::string_view name, types::Slowdown& slowdown) {
    fields.group(
        {name, "what copies add to kernels of this class, as a fraction of their time", true}, [&](Fields& inside) {
            describe_sources(inside);
            inside.number({"under_d2h", "while a copy to the host runs", true}, slowdown.under_d2h, kFraction);
            inside.number({"under_h2d", "while a copy from the host runs", true}, slowdown.under_h2d, kFraction);
            inside.number({"under_both", "while both run", true}, slowdown.under_both, kFraction);
        });
}

void describe_copy(Fields& fields, types::CopyEngines& copy) {
    describe_sources(fields);
    describe_curve(fields, {"device_to_host", "measured copies of pinned memory", true}, copy.device_to_host);
    describe_curve(fields, {"host_to_device", "measured copies of pinned memory", true}, copy.host_to_device);
    fields.number({"duplex_device_to_host", "share of its rate that is left while both directions run", true},
                  copy.duplex_device_to_host, kShare);
    fields.number({"duplex_host_to_device", "share of its rate that is left while both directions run", true},
                  copy.duplex_host_to_device, kShare);
    fields.microseconds(
        {"time_slice_us", "how long copies to the host hold their engine before cudaMalloc gets a turn"},
        copy.time_slice, kMicroseconds);
    fields.group({"slowdown", "kernels beside copies", true}, [&](Fields& inside) {
        describe_sources(inside);
        for (const auto& [kernel_class, name] : types::enum_names<types::KernelClass>())
            describe_slowdown(inside, name, copy.slowdown[static_cast<int>(kernel_class)]);
    });
}

void describe_host(Fields& fields, types::HostCosts& host) {
    describe_sources(fields);
    const auto cost = [&](std::string_view name, std::string_view about, types::Nanoseconds& value) {
        fields.microseconds({name, about, true}, value, kMicroseconds);
    };
    cost("kernel_launch_us", "bare launch of a kernel", host.kernel_launch);
    cost("framework_forward_us", "what the framework adds for each kernel of a forward", host.framework_forward);
    cost("framework_backward_us", "the same for a backward", host.framework_backward);
    fields.microseconds({"gemm_call_us", "a GEMM of stowage's own layers; without it as kernel_launch_us"},
                        host.gemm_call, kMicroseconds);
    fields.microseconds({"attention_call_us", "attention of stowage's own layers; without it as kernel_launch_us"},
                        host.attention_call, kMicroseconds);
    cost("copy_launch_us", "issue of an asynchronous copy", host.copy_launch);
    cost("event_call_us", "record, wait or query of an event", host.event_call);
    cost("synchronize_us", "host side of a synchronisation with an idle device", host.synchronize);
    cost("device_allocation_call_us", "cudaMalloc", host.device_allocation_call);
    cost("pinned_allocation_us_per_gib", "cudaHostAlloc, first touch included", host.pinned_allocation_per_gib);
    fields.gb_per_s({"memory_bandwidth_gb_per_s", "host memory of the machine, bytes read and written"},
                    host.memory_bandwidth);
    fields.count({"launch_queue_depth", "launches in flight before the host blocks"}, host.launch_queue_depth,
                 IntegerRange{1, 1'000'000});
}

void describe_graph(Fields& fields, types::GraphCosts& graph) {
    describe_sources(fields);
    const auto cost = [&](std::string_view name, std::string_view about, types::Nanoseconds& value) {
        fields.microseconds({name, about}, value, kMicroseconds);
    };
    cost("launch_us", "host: launch of a graph of one branch, without its nodes", graph.launch);
    cost("launch_per_node_us", "host: what each node adds", graph.launch_per_node);
    cost("launch_per_branch_us", "host: what each further branch adds", graph.launch_per_branch);
    cost("framework_forward_us", "host: what the framework adds for each replayed forward graph",
         graph.framework_forward);
    cost("framework_backward_us", "the same for a backward graph", graph.framework_backward);
    cost("instantiate_per_node_us", "host: instantiation, for each node", graph.instantiate_per_node);
    cost("node_overhead_us", "device: fixed time of a kernel node", graph.node_overhead);
    fields.size({"memory_per_graph", "device memory of an executable graph, without its nodes"},
                graph.memory_per_graph);
    fields.size({"memory_per_node", "device memory of each node"}, graph.memory_per_node);
    fields.size({"memory_per_branch", "device memory of each further branch"}, graph.memory_per_branch);
    fields.number({"copy_device_to_host", "share of its rate that a graph's copy keeps beside the graph's kernels"},
                  graph.copy_device_to_host, kShare);
    fields.number({"copy_host_to_device", "share of its rate that a graph's copy keeps beside the graph's kernels"},
                  graph.copy_host_to_device, kShare);
}

void describe_link(Fields& fields, types::Link& link) {
    describe_sources(fields);
    fields.gb_per_s({"rate_gb_per_s", "one direction of one device", true}, link.rate);
    fields.microseconds({"latency_us", "of a message", true}, link.latency, kMicroseconds);
}

}  // namespace

void describe_hardware(Fields& fields, types::Node& node) {
    fields.schema(kHardwareFile);
    describe_sources(fields);
    fields.text({"name", "default: the file's name"}, node.name);
    std::int64_t gpus = node.gpus_per_node;
    fields.count({"gpus_per_node", "GPUs of one machine", true}, gpus, IntegerRange{1, 1024});
    node.gpus_per_node = static_cast<int>(gpus);
    fields.size({"host_memory", "of one machine", true}, node.host_memory);
    fields.group({"device", "one GPU", true}, [&](Fields& inside) { describe_device(inside, node.device); });
    fields.group({"copy", "copy engines to pinned host memory", true},
                 [&](Fields& inside) { describe_copy(inside, node.copy); });
    fields.group({"host", "what the host thread pays", true},
                 [&](Fields& inside) { describe_host(inside, node.host); });
    fields.group({"graph", "what CUDA graphs cost; left out: nothing"},
                 [&](Fields& inside) { describe_graph(inside, node.graph); });
    fields.group({"nvlink", "link between GPUs of a machine", true},
                 [&](Fields& inside) { describe_link(inside, node.nvlink); });
    fields.group({"network", "link between machines", true},
                 [&](Fields& inside) { describe_link(inside, node.network); });
}

}  // namespace stowage::reader
