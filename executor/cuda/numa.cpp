#include "executor/cuda/numa.hpp"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <system_error>

namespace stowage::executor {
namespace {

constexpr unsigned long kBits = 8 * sizeof(unsigned long);

/// The kernel takes one from the number of bits that it is told.
template <class Mask>
unsigned long mask_bits(const Mask& mask) {
    return mask.size() * kBits + 1;
}

}  // namespace

std::optional<int> numa_node_of_pci(const std::string& bus_id, const std::string& root) {
    std::string name = bus_id;
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::ifstream file(root + "/" + name + "/numa_node");
    int node = -1;
    if (!(file >> node) || node < 0) return std::nullopt;
    return node;
}

std::optional<types::Bytes> available_host_memory(const std::string& meminfo) {
    std::ifstream file(meminfo);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string key;
        std::int64_t kib = 0;
        if (words >> key >> kib && key == "MemAvailable:") return types::Bytes{kib * 1024};
    }
    return std::nullopt;
}

PreferNumaNode::PreferNumaNode(int node) {
    if (node < 0 || node >= kMaxNodes) {
        refusal_ = fmt::format("NUMA node {} is beyond what is handled", node);
        return;
    }
    NodeMask mask{};
    mask[static_cast<unsigned long>(node) / kBits] = 1UL << (static_cast<unsigned long>(node) % kBits);
    long failed =
        syscall(SYS_get_mempolicy, &former_mode_, former_nodes_.data(), former_nodes_.size() * kBits, nullptr, 0UL);
    if (failed == 0) failed = syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), mask_bits(mask));
    if (failed != 0) refusal_ = std::generic_category().message(errno);
}

PreferNumaNode::~PreferNumaNode() {
    if (!refusal_.empty()) return;
    static_cast<void>(syscall(SYS_set_mempolicy, former_mode_, former_nodes_.data(), mask_bits(former_nodes_)));
}

}  // namespace stowage::executor
