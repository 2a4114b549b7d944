#include "scenarios/types/module.hpp"

namespace stowage::types {

std::vector<Module> ModuleSet::list() const {
    std::vector<Module> modules;
    for (const auto& [module, name] : enum_names<Module>())
        if (contains(module)) modules.push_back(module);
    return modules;
}

std::string ModuleSet::joined(std::string_view separator) const {
    std::string text;
    for (Module module : list()) {
        if (!text.empty()) text += separator;
        text += name_of(module);
    }
    return text;
}

}  // namespace stowage::types
