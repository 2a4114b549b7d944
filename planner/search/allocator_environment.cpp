#include "planner/search/allocator_environment.hpp"

#include <fmt/format.h>

#include <string>

namespace stowage::search {

std::variant<memory::AllocatorConfig, layers::Unsupported> allocator_environment(const types::Scenario& scenario) {
    for (const char* variable : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
        const auto given = scenario.env.find(variable);
        if (given == scenario.env.end()) continue;
        const auto read = memory::parse_allocator_config(given->second);
        if (const auto* parsed = std::get_if<memory::ParsedAllocatorConfig>(&read)) return parsed->config;
        const auto& error = std::get<memory::AllocatorConfigError>(read);
        return layers::Unsupported{
            std::string("env.") + variable,
            fmt::format("'{}': {} (at character {})", given->second, error.message, error.position + 1), error.hint};
    }
    return memory::AllocatorConfig{};
}

}  // namespace stowage::search
