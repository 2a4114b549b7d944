#include "scenarios/types/module.hpp"

#include <gtest/gtest.h>

namespace stowage::types {
namespace {

TEST(Module, NamesAreMegatronsAndReadBack) {
    for (const auto& [module, name] : enum_names<Module>()) EXPECT_EQ(parse_name<Module>(name), module);
    EXPECT_EQ(parse_name<Module>("core_atn"), std::nullopt);
}

TEST(ModuleSet, ListsInHookOrderWhateverTheOrderGiven) {
    const ModuleSet modules{Module::moe_act, Module::core_attn};
    EXPECT_EQ(modules.joined(), "core_attn moe_act");
    EXPECT_EQ(modules.size(), 2);
    EXPECT_FALSE(modules.contains(Module::attn_proj));
}

}  // namespace
}  // namespace stowage::types
