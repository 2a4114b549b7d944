#pragma once

#include <array>
#include <optional>
#include <string>

#include "scenarios/types/bytes.hpp"

namespace stowage::executor {

/// The NUMA node that a PCI device hangs on, by its address as "0000:1b:00.0" (letters of either case); nothing if the
/// system does not say or has one node only (it says -1 then).
std::optional<int> numa_node_of_pci(const std::string& bus_id, const std::string& root = "/sys/bus/pci/devices");

/// What the system could still give, MemAvailable of /proc/meminfo; nothing if it does not say.
std::optional<types::Bytes> available_host_memory(const std::string& meminfo = "/proc/meminfo");

/// While this lives, pages that this thread touches first, itself or by the driver's hand, are taken from one NUMA
/// node as long as it has any. The thread's former policy returns afterwards.
class PreferNumaNode {
public:
    /// Does nothing if the system refuses, as containers often do: `refusal` says why.
    explicit PreferNumaNode(int node);
    PreferNumaNode(const PreferNumaNode&) = delete;
    PreferNumaNode& operator=(const PreferNumaNode&) = delete;
    PreferNumaNode(PreferNumaNode&&) = delete;
    PreferNumaNode& operator=(PreferNumaNode&&) = delete;
    ~PreferNumaNode();

    /// Empty if the policy holds.
    [[nodiscard]] const std::string& refusal() const { return refusal_; }

private:
    static constexpr int kMaxNodes = 1024;
    using NodeMask = std::array<unsigned long, kMaxNodes / (8 * sizeof(unsigned long))>;

    int former_mode_ = 0;
    NodeMask former_nodes_{};
    std::string refusal_;
};

}  // namespace stowage::executor
