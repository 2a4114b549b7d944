#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/types/enum_names.hpp"

namespace stowage::types {

/// The modules whose saved inputs Megatron's `--offload-modules` can move, in the order their hooks start inside a
/// layer.
enum class Module : std::uint8_t {
    attn_norm,
    qkv_linear,
    core_attn,
    attn_proj,
    mlp_norm,
    expert_fc1,
    moe_act,
    fused_group_mlp,
    gdp_qkv,
};
inline constexpr int kModuleCount = 9;

template <>
struct EnumNames<Module> {
    static constexpr std::array<std::pair<Module, std::string_view>, kModuleCount> values{{
        {Module::attn_norm, "attn_norm"},
        {Module::qkv_linear, "qkv_linear"},
        {Module::core_attn, "core_attn"},
        {Module::attn_proj, "attn_proj"},
        {Module::mlp_norm, "mlp_norm"},
        {Module::expert_fc1, "expert_fc1"},
        {Module::moe_act, "moe_act"},
        {Module::fused_group_mlp, "fused_group_mlp"},
        {Module::gdp_qkv, "gdp_qkv"},
    }};
};

/// A set of modules; iterates in the order of the enumeration, whatever order they were given in.
class ModuleSet {
public:
    constexpr ModuleSet() = default;
    constexpr ModuleSet(std::initializer_list<Module> modules) {
        for (Module module : modules) insert(module);
    }
    constexpr void insert(Module module) { bits_ |= bit(module); }
    constexpr void erase(Module module) { bits_ &= static_cast<std::uint16_t>(~bit(module)); }
    [[nodiscard]] constexpr bool contains(Module module) const { return (bits_ & bit(module)) != 0; }
    [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
    [[nodiscard]] constexpr int size() const { return __builtin_popcount(bits_); }
    [[nodiscard]] std::vector<Module> list() const;
    /// The names separated by `separator`, empty text for the empty set.
    [[nodiscard]] std::string joined(std::string_view separator = " ") const;
    friend constexpr auto operator<=>(ModuleSet, ModuleSet) = default;

private:
    static constexpr std::uint16_t bit(Module module) {
        return static_cast<std::uint16_t>(1U << static_cast<unsigned>(module));
    }
    std::uint16_t bits_ = 0;
};

}  // namespace stowage::types
