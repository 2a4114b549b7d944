#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/reader/diagnostics.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::reader {

/// Where each key of a scenario stood, so that checks made long after reading still point at file, line and column.
/// Keys are paths from the scenario's root, such as `parallel.tensor_model_parallel_size`; what came from a model or
/// hardware file is found under `model.` and `hardware.node.` all the same, and points into that file.
class SourceMap {
public:
    void set(const std::string& path, Location location);
    /// Whether the key was given; what was left to its default was not.
    [[nodiscard]] bool contains(std::string_view path) const;
    /// Every key that was given, in alphabetical order.
    [[nodiscard]] std::vector<std::string> paths() const;
    /// The place of the key, else of the nearest enclosing group that was given, else of the scenario file.
    [[nodiscard]] Location find(std::string_view path) const;
    /// The full paragraph for an error in the value at `path`.
    [[nodiscard]] std::string describe(std::string_view path, std::string_view message,
                                       std::string_view hint = {}) const;
    /// The same as an exception to throw.
    [[nodiscard]] types::InputError error_at(std::string_view path, std::string_view message,
                                             std::string_view hint = {}) const;

private:
    std::map<std::string, Location, std::less<>> locations_;
};

}  // namespace stowage::reader
