#include "reports/document.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::reports {
namespace {

// Both far above what a verb writes: a plan of 10,000 pipeline ranks takes some 10 MiB, and nests ten levels.
constexpr std::size_t kLargestDocument = std::size_t{256} << 20;
constexpr int kDeepest = 64;

[[noreturn]] void fail_reading(const std::filesystem::path& path, std::string_view reason) {
    throw types::InputError(fmt::format("{}: error: {}", path.string(), reason));
}

/// Pipes are read too: `stowage plan --json s.yaml | stowage report /dev/stdin`.
std::string read_text(const std::filesystem::path& path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) fail_reading(path, "is a folder, expected a file");
    errno = 0;
    std::FILE* const opened = std::fopen(path.c_str(), "rbe");
    if (opened == nullptr) fail_reading(path, std::strerror(errno));
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(opened, &std::fclose);
    std::string text;
    std::array<char, 1 << 16> piece{};
    while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), file.get())) {
        text.append(piece.data(), count);
        if (text.size() > kLargestDocument) fail_reading(path, "is larger than 256 MiB, expected a file of stowage");
    }
    if (std::ferror(file.get()) != 0) fail_reading(path, fmt::format("reading it failed: {}", std::strerror(errno)));
    return text;
}

/// Writing a document follows its nesting, so what nests without end is kept out.
Json parsed(const std::filesystem::path& path) {
    return Json::parse(read_text(path), [&](int depth, Json::parse_event_t, Json&) {
        if (depth > kDeepest) fail_reading(path, fmt::format("found more than {} levels of nesting", kDeepest));
        return true;
    });
}

std::string writer_of(std::string_view schema) {
    const std::size_t begin = schema.find('/') + 1;
    const std::string_view kind = schema.substr(begin, schema.rfind('/') - begin);
    if (kind == "measurement") return "stowage execute";
    return kind == "plan" ? "stowage plan" : "stowage simulate";
}

types::ModuleSet modules_of(const Json& names, const std::string& file) {
    types::ModuleSet modules;
    if (!names.is_array()) fail_document(file, "expected lists of modules, found " + names.dump());
    for (const Json& name : names) {
        const auto module = types::parse_name<types::Module>(name.get<std::string>());
        if (!module) fail_document(file, fmt::format("there is no module {} to offload", name.dump()));
        modules.insert(*module);
    }
    return modules;
}

/// Far above what a choice holds; products of it overflow nothing. What a negative number means, the rules say.
constexpr std::int64_t kLargestOfChoice = 1'000'000'000'000'000;

std::int64_t whole_of(const Json& value, const std::string& path, std::int64_t least, std::int64_t most,
                      const std::string& file) {
    const bool whole = value.is_number_unsigned() ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                                                  : value.is_number_integer() && value.get<std::int64_t>() <= most;
    if (!whole || value.get<std::int64_t>() < least)
        fail_document(
            file, fmt::format("{}: found {}, expected a whole number from {} to {}", path, value.dump(), least, most));
    return value.get<std::int64_t>();
}

std::int64_t whole_of(const Json& choice, const char* key, const std::string& file) {
    return whole_of(choice.at(key), std::string("choice.") + key, -kLargestOfChoice, kLargestOfChoice, file);
}

/// Only a choice of policy `stowage` has it.
std::optional<types::FreeOffload> free_of(const Json& choice, std::int64_t layers, const std::string& file) {
    constexpr std::int64_t kMostGroups = 1'000'000;
    const auto found = choice.find("free");
    if (found == choice.end()) return std::nullopt;
    types::FreeOffload free;
    const Json& by_layer = found->at("by_layer");
    if (!by_layer.is_array() || static_cast<std::int64_t>(by_layer.size()) > layers)
        fail_document(file, fmt::format("choice.free.by_layer: expected a list of at most {} layers", layers));
    for (const Json& names : by_layer) free.by_layer.push_back(modules_of(names, file));
    free.reload_ahead = whole_of(found->at("reload_ahead"), "choice.free.reload_ahead", 1, kMostGroups, file);
    free.join_after = whole_of(found->at("join_after"), "choice.free.join_after", 0, kMostGroups, file);
    return free;
}

/// Nothing where the key is missing (plans of older versions) or null.
std::optional<std::int64_t> optional_count(const Json& choice, const char* key, const std::string& file) {
    const auto found = choice.find(key);
    if (found == choice.end() || found->is_null()) return std::nullopt;
    return whole_of(*found, std::string("choice.") + key, 0, kLargestOfChoice, file);
}

double fraction_of(const Json& choice, const std::string& file) {
    const Json& value = choice.at("activation_offload_fraction");
    if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= 1))
        fail_document(file,
                      "choice.activation_offload_fraction: found " + value.dump() + ", expected a number from 0 to 1");
    return value.get<double>();
}

std::string named_schema(const Json& document) {
    const bool named = document.is_object() && document.contains("schema") && document["schema"].is_string();
    return named ? document["schema"].get<std::string>() : "";
}

}  // namespace

void fail_document(const std::string& file, std::string_view reason) {
    throw types::InputError(fmt::format("{}: error: not as stowage writes it: {}", file, reason));
}

bool looks_like_json(const std::filesystem::path& path) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) return false;
    std::ifstream file(path, std::ios::binary);
    for (char letter = 0; file.get(letter);)
        if (std::isspace(static_cast<unsigned char>(letter)) == 0) return letter == '{';
    return false;
}

Json read_document(const std::filesystem::path& path, std::string_view schema) {
    Json document;
    try {
        document = parsed(path);
    } catch (const Json::exception& error) {
        throw types::InputError(fmt::format("{}: error: not JSON: {}\nhint: expected {}, which '{}' writes",
                                            path.string(), error.what(), schema, writer_of(schema)));
    }
    const std::string found = named_schema(document);
    if (found != schema)
        throw types::InputError(fmt::format("{}: error: schema: found {}, expected {}\nhint: '{}' writes such files",
                                            path.string(), found.empty() ? "none" : found, schema, writer_of(schema)));
    return document;
}

std::string schema_of(const std::filesystem::path& path) {
    try {
        return named_schema(parsed(path));
    } catch (const Json::exception& error) {
        throw types::InputError(fmt::format("{}: error: not JSON: {}", path.string(), error.what()));
    }
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
            .fraction = fraction_of(choice, file),
            .min_offloaded_tensor_size = whole_of(choice, "min_offloaded_tensor_size", file),
            .delta_bytes_across_pp_ranks = whole_of(choice, "delta_offload_bytes_across_pp_ranks", file),
            .max_inflight_offloads = optional_count(choice, "fine_grained_offloading_max_inflight_offloads", file),
            .delay_until_cuda_graph = choice.value("delay_offload_until_cuda_graph", false),
            .free = free_of(choice, planned.scenario.model.num_layers, file)};
        return planned;
    });
}

}  // namespace stowage::reports
