#include "profiler/cupti/name_table.hpp"

namespace stowage::profiler {

std::uint32_t NameTable::index_of(std::string_view name) {
    const auto found = indices_.find(name);
    if (found != indices_.end()) return found->second;
    const auto index = static_cast<std::uint32_t>(names_.size());
    indices_.emplace(name, index);
    names_.emplace_back(name);
    return index;
}

}  // namespace stowage::profiler
