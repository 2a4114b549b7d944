#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace stowage::profiler {

/// Names, each once; the first is "".
class NameTable {
public:
    NameTable() { index_of(""); }
    std::uint32_t index_of(std::string_view name);
    [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
    };
    std::vector<std::string> names_;
    std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> indices_;
};

}  // namespace stowage::profiler
