#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/layers/support.hpp"
#include "scenarios/types/enum_names.hpp"

namespace stowage::layers {

/// What a scenario asks for and no layer is described for.
class Missing {
public:
    void when(bool condition, std::string path, std::string feature, std::string hint) {
        if (condition) features_.push_back({std::move(path), std::move(feature), std::move(hint)});
    }
    std::vector<Unsupported> take() { return std::move(features_); }

private:
    std::vector<Unsupported> features_;
};

/// "key: value".
template <class Enum>
std::string setting(std::string_view key, Enum value) {
    return std::string{key} + ": " + std::string{types::name_of(value)};
}

inline std::string setting(std::string_view key, std::int64_t value) {
    return std::string{key} + ": " + std::to_string(value);
}

}  // namespace stowage::layers
