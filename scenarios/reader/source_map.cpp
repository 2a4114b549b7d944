#include "scenarios/reader/source_map.hpp"

#include <utility>

namespace stowage::reader {

void SourceMap::set(const std::string& path, Location location) { locations_[path] = std::move(location); }

bool SourceMap::contains(std::string_view path) const { return locations_.find(path) != locations_.end(); }

std::vector<std::string> SourceMap::paths() const {
    std::vector<std::string> paths;
    for (const auto& [path, location] : locations_)
        if (!path.empty()) paths.push_back(path);
    return paths;
}

Location SourceMap::find(std::string_view path) const {
    std::string_view enclosing = path;
    for (;;) {
        const auto found = locations_.find(enclosing);
        if (found != locations_.end()) {
            Location location = found->second;
            if (enclosing != path) location.path = std::string(path);
            return location;
        }
        if (enclosing.empty()) return Location{nullptr, {}, std::string(path)};
        const std::size_t dot = enclosing.rfind('.');
        enclosing = dot == std::string_view::npos ? std::string_view{} : enclosing.substr(0, dot);
    }
}

std::string SourceMap::describe(std::string_view path, std::string_view message, std::string_view hint) const {
    return format_error(find(path), message, hint);
}

types::InputError SourceMap::error_at(std::string_view path, std::string_view message, std::string_view hint) const {
    return types::InputError(describe(path, message, hint));
}

}  // namespace stowage::reader
