#include "profiler/calibrate/hardware_yaml.hpp"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <array>
#include <cmath>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/reader/scenario_yaml.hpp"

namespace stowage::calibrate {
namespace {

using types::Nanoseconds;

constexpr std::size_t kWidth = 120;

/// The shortest decimal number that is the value, without an exponent.
std::string number(double value) {
    std::string text = fmt::format("{:.6f}", value);
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
    return text;
}

std::string microseconds(Nanoseconds time) { return number(static_cast<double>(time.count()) / 1e3); }

std::string size_text(Bytes size) {
    constexpr std::array<std::pair<int, const char*>, 3> kUnits{{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}}};
    for (const auto& [shift, unit] : kUnits) {
        const std::int64_t one = std::int64_t{1} << shift;
        if (size.count >= one && size.count % one == 0) return fmt::format("{} {}", size.count / one, unit);
    }
    return fmt::format("{} B", size.count);
}

/// The text of one file, grown line by line.
class Page {
public:
    explicit Page(const Calibration& calibration) : calibration_(calibration) {}

    void line(const std::string& text) { text_ += std::string(indent_, ' ') + text + "\n"; }
    template <class Inside>
    void group(const std::string& name, const Inside& inside) {
        line(name + ":");
        indent_ += 2;
        inside();
        indent_ -= 2;
    }
    void sources(Section section) {
        const auto known = calibration_.sources.find(section);
        if (known == calibration_.sources.end()) return;
        group("sources", [&] {
            for (const auto& [figures, text] : known->second) entry(figures, text);
        });
    }
    void rate(const std::string& key, types::BytesPerSecond value) {
        line(key + "_gb_per_s: " + number(value.rate / 1e9));
    }
    void rate(const std::string& key, types::FlopsPerSecond value) {
        line(key + "_tflop_per_s: " + number(value.rate / 1e12));
    }
    void time(const std::string& key, Nanoseconds value) { line(key + "_us: " + microseconds(value)); }
    [[nodiscard]] std::string text() const { return text_; }

private:
    /// One line if it fits; folded otherwise, which reads back as one line too.
    void entry(const std::string& figures, const std::string& text) {
        const std::string one_line = figures + ": " + reader::yaml_text(text);
        if (indent_ + one_line.size() <= kWidth) return line(one_line);
        line(figures + ": >-");
        const std::string margin(indent_ + 2, ' ');
        std::string row;
        std::size_t begin = 0;
        while (begin < text.size()) {
            const std::size_t end = std::min(text.find(' ', begin), text.size());
            const std::string word = text.substr(begin, end - begin);
            if (!row.empty() && margin.size() + row.size() + 1 + word.size() > kWidth) {
                text_ += margin + row + "\n";
                row.clear();
            }
            if (!word.empty()) row += (row.empty() ? "" : " ") + word;
            begin = end + 1;
        }
        text_ += margin + row + "\n";
    }

    const Calibration& calibration_;
    std::string text_;
    std::size_t indent_ = 0;
};

std::string loss_text(const types::AttentionLoss& loss) {
    return fmt::format("{{start_keys: {}, tail_blocks: {}}}", number(loss.start_keys), number(loss.tail_blocks));
}

void write_attention(Page& page, const types::Device& device) {
    page.rate("attention_forward_bf16", device.attention_forward_bf16);
    page.rate("attention_backward_bf16", device.attention_backward_bf16);
    page.line("attention_forward: " + loss_text(device.attention_forward));
    page.line("attention_backward: " + loss_text(device.attention_backward));
    if (device.attention_head_sizes.empty()) return;
    page.group("attention_head_sizes", [&] {
        for (const types::HeadSizeRate& rate : device.attention_head_sizes)
            page.line(fmt::format("- {{head_size: {}, forward: {}, backward: {}}}", number(rate.head_size),
                                  number(rate.forward), number(rate.backward)));
    });
}

void write_rates_by_duty(Page& page, const std::vector<types::DutyRate>& rates) {
    if (rates.empty()) return;
    page.group("rates_by_duty", [&] {
        for (const types::DutyRate& rate : rates)
            page.line(fmt::format("- {{duty: {}, gemm: {}, attention: {}}}", number(rate.duty), number(rate.gemm),
                                  number(rate.attention)));
    });
}

void write_device(Page& page, const types::Device& device) {
    page.sources(Section::device);
    if (!device.name.empty()) page.line("name: " + reader::yaml_text(device.name));
    page.line(fmt::format("compute_capability: {}", device.compute_capability));
    page.line("memory: " + size_text(device.memory));
    page.rate("gemm_bf16", device.gemm_bf16);
    if (device.gemm_fp8.rate > 0) page.rate("gemm_fp8", device.gemm_fp8);
    if (device.gemm_fp8_blockwise.rate > 0) page.rate("gemm_fp8_blockwise", device.gemm_fp8_blockwise);
    page.time("gemm_ramp", device.gemm_ramp);
    write_attention(page, device);
    write_rates_by_duty(page, device.rates_by_duty);
    page.rate("memory_bandwidth", device.memory_bandwidth);
    if (device.strided_bandwidth.rate > 0) page.rate("strided_bandwidth", device.strided_bandwidth);
    page.time("kernel_overhead", device.kernel_overhead);
}

void write_curve(Page& page, const std::string& name, const types::CopyCurve& curve) {
    page.group(name, [&] {
        for (const types::CopyPoint& point : curve.points())
            page.line(fmt::format("- {{size: {}, time_us: {}}}", size_text(point.size), microseconds(point.time)));
    });
}

void write_slowdown(Page& page, const types::CopyEngines& copy) {
    page.sources(Section::slowdown);
    for (const auto& [kernel_class, name] : types::enum_names<types::KernelClass>()) {
        const types::Slowdown& slowdown = copy.slowdown[static_cast<int>(kernel_class)];
        page.line(fmt::format("{}: {{under_d2h: {}, under_h2d: {}, under_both: {}}}", name, number(slowdown.under_d2h),
                              number(slowdown.under_h2d), number(slowdown.under_both)));
    }
}

void write_copy(Page& page, const types::CopyEngines& copy) {
    page.sources(Section::copy);
    write_curve(page, "device_to_host", copy.device_to_host);
    write_curve(page, "host_to_device", copy.host_to_device);
    page.line("duplex_device_to_host: " + number(copy.duplex_device_to_host));
    page.line("duplex_host_to_device: " + number(copy.duplex_host_to_device));
    page.time("time_slice", copy.time_slice);
    page.group("slowdown", [&] { write_slowdown(page, copy); });
}

void write_host(Page& page, const types::HostCosts& host) {
    page.sources(Section::host);
    page.time("kernel_launch", host.kernel_launch);
    if (host.gemm_call.count() > 0) page.time("gemm_call", host.gemm_call);
    if (host.attention_call.count() > 0) page.time("attention_call", host.attention_call);
    page.time("framework_forward", host.framework_forward);
    page.time("framework_backward", host.framework_backward);
    page.time("copy_launch", host.copy_launch);
    page.time("event_call", host.event_call);
    page.time("synchronize", host.synchronize);
    page.time("device_allocation_call", host.device_allocation_call);
    page.line("pinned_allocation_us_per_gib: " + microseconds(host.pinned_allocation_per_gib));
    page.line(fmt::format("launch_queue_depth: {}", host.launch_queue_depth));
    if (host.memory_bandwidth.rate > 0) page.rate("memory_bandwidth", host.memory_bandwidth);
}

void write_graph(Page& page, const types::GraphCosts& graph) {
    page.sources(Section::graph);
    page.time("launch", graph.launch);
    page.time("launch_per_node", graph.launch_per_node);
    page.time("launch_per_branch", graph.launch_per_branch);
    page.time("framework_forward", graph.framework_forward);
    page.time("framework_backward", graph.framework_backward);
    page.time("instantiate_per_node", graph.instantiate_per_node);
    page.time("node_overhead", graph.node_overhead);
    page.line("memory_per_graph: " + size_text(graph.memory_per_graph));
    page.line("memory_per_node: " + size_text(graph.memory_per_node));
    page.line("memory_per_branch: " + size_text(graph.memory_per_branch));
    if (graph.copy_device_to_host < 1) page.line("copy_device_to_host: " + number(graph.copy_device_to_host));
    if (graph.copy_host_to_device < 1) page.line("copy_host_to_device: " + number(graph.copy_host_to_device));
}

void write_link(Page& page, Section section, const types::Link& link) {
    page.sources(section);
    page.rate("rate", link.rate);
    page.time("latency", link.latency);
}

// ---------------------------------------------------------------------------------------------------------------- base

constexpr std::array<std::pair<Section, const char*>, kSections> kPaths{{{Section::top, ""},
                                                                         {Section::device, "device"},
                                                                         {Section::copy, "copy"},
                                                                         {Section::slowdown, "copy.slowdown"},
                                                                         {Section::host, "host"},
                                                                         {Section::graph, "graph"},
                                                                         {Section::nvlink, "nvlink"},
                                                                         {Section::network, "network"}}};

YAML::Node section_of(const YAML::Node& root, const std::string& path) {
    YAML::Node at = root;
    for (std::size_t begin = 0; begin < path.size();) {
        const std::size_t end = std::min(path.find('.', begin), path.size());
        at.reset(at[path.substr(begin, end - begin)]);
        begin = end + 1;
    }
    return at;
}

/// What the reader leaves alone: remarks may be anything, so what is no map of texts is passed over.
Sources sources_of(const YAML::Node& section) {
    Sources sources;
    if (!section.IsMap()) return sources;
    const YAML::Node remarks = section["sources"];
    if (!remarks.IsDefined() || !remarks.IsMap()) return sources;
    for (const auto& entry : remarks)
        if (entry.first.IsScalar() && entry.second.IsScalar())
            sources.emplace_back(entry.first.Scalar(), entry.second.Scalar());
    return sources;
}

}  // namespace

std::string hardware_yaml(const Calibration& calibration, const std::string& remark) {
    const types::Node& node = calibration.node;
    Page page(calibration);
    if (!remark.empty()) page.line("# " + remark);
    page.line("schema: stowage/hardware/1");
    if (!node.name.empty()) page.line("name: " + reader::yaml_text(node.name));
    page.sources(Section::top);
    page.line(fmt::format("gpus_per_node: {}", node.gpus_per_node));
    page.line("host_memory: " + size_text(node.host_memory));
    page.group("device", [&] { write_device(page, node.device); });
    page.group("copy", [&] { write_copy(page, node.copy); });
    page.group("host", [&] { write_host(page, node.host); });
    page.group("graph", [&] { write_graph(page, node.graph); });
    page.group("nvlink", [&] { write_link(page, Section::nvlink, node.nvlink); });
    page.group("network", [&] { write_link(page, Section::network, node.network); });
    return page.text();
}

Base read_base(const std::filesystem::path& path) {
    Base base{path.filename().string(), reader::read_hardware(path), {}};
    const YAML::Node root = YAML::LoadFile(path.string());  // the reader has found it to be well formed
    for (const auto& [section, place] : kPaths) base.sources[section] = sources_of(section_of(root, place));
    return base;
}

}  // namespace stowage::calibrate
