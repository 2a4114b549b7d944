#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace stowage::types {

/// One spelling of each enumerator, as it stands in files and on the command line. Specialised next to each enum.
template <class Enum>
struct EnumNames;

template <class Enum>
constexpr std::span<const std::pair<Enum, std::string_view>> enum_names() {
    return EnumNames<Enum>::values;
}

/// The spelling of `value`; every enumerator has one.
template <class Enum>
requires requires { EnumNames<Enum>::values; }
constexpr std::string_view name_of(Enum value) {
    for (const auto& [candidate, name] : enum_names<Enum>())
        if (candidate == value) return name;
    return "?";
}

template <class Enum>
constexpr std::optional<Enum> parse_name(std::string_view text) {
    for (const auto& [candidate, name] : enum_names<Enum>())
        if (name == text) return candidate;
    return std::nullopt;
}

}  // namespace stowage::types
