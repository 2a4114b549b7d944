#include "reports/document.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::reports {
namespace {

std::string read_text(const std::filesystem::path& path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
        throw types::InputError(fmt::format("{}: error: is a folder, expected a file", path.string()));
    std::ifstream file(path, std::ios::binary);
    if (!file) throw types::InputError(fmt::format("{}: error: {}", path.string(), std::strerror(errno)));
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string writer_of(std::string_view schema) {
    const std::size_t begin = schema.find('/') + 1;
    const std::string_view kind = schema.substr(begin, schema.rfind('/') - begin);
    return kind == "plan" ? "stowage plan" : "stowage simulate";
}

types::ModuleSet modules_of(const Json& names, const std::string& file) {
    types::ModuleSet modules;
    for (const Json& name : names) {
        const auto module = types::parse_name<types::Module>(name.get<std::string>());
        if (!module) fail_document(file, fmt::format("choice.offload_modules has no module {}", name.dump()));
        modules.insert(*module);
    }
    return modules;
}

}  // namespace

void fail_document(const std::string& file, std::string_view reason) {
    throw types::InputError(fmt::format("{}: error: not as stowage writes it: {}", file, reason));
}

bool looks_like_json(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    for (char letter = 0; file.get(letter);)
        if (std::isspace(static_cast<unsigned char>(letter)) == 0) return letter == '{';
    return false;
}

Json read_document(const std::filesystem::path& path, std::string_view schema) {
    Json document;
    try {
        document = Json::parse(read_text(path));
    } catch (const Json::exception& error) {
        throw types::InputError(fmt::format("{}: error: not JSON: {}\nhint: expected {}, which '{}' writes",
                                            path.string(), error.what(), schema, writer_of(schema)));
    }
    const bool named = document.is_object() && document.contains("schema") && document["schema"].is_string();
    const std::string found = named ? document["schema"].get<std::string>() : "none";
    if (found != schema)
        throw types::InputError(fmt::format("{}: error: schema: found {}, expected {}\nhint: '{}' writes such files",
                                            path.string(), found, schema, writer_of(schema)));
    return document;
}

PlannedChoice planned_choice(const Json& plan, const std::string& file) {
    return reading(file, [&] {
        PlannedChoice planned;
        planned.scenario = reader::read_scenario_text(file + " (its scenario)", to_text(plan.at("scenario")));
        planned.scenario.name = plan.at("scenario_name").get<std::string>();
        const Json& choice = plan.at("choice");
        if (choice.is_null()) return planned;
        planned.choice = types::OffloadChoice{
            .modules = modules_of(choice.at("offload_modules"), file),
            .fraction = choice.at("activation_offload_fraction").get<double>(),
            .min_offloaded_tensor_size = choice.at("min_offloaded_tensor_size").get<std::int64_t>(),
            .delta_bytes_across_pp_ranks = choice.at("delta_offload_bytes_across_pp_ranks").get<std::int64_t>()};
        return planned;
    });
}

}  // namespace stowage::reports
