#include "tests/architecture/include_direction.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <regex>
#include <string_view>
#include <tuple>

namespace stowage::architecture {
namespace {

namespace fs = std::filesystem;
using Folders = std::set<std::string>;

const Folders kScenarios = {"scenarios/types", "scenarios/reader", "scenarios/recording"};
const Folders kPlanner = {"planner/layers", "planner/rules",     "planner/program",
                          "planner/memory", "planner/simulator", "planner/search"};
const Folders kExecutor = {"executor/cuda", "executor/workload", "executor/engine", "executor/ranks"};
const Folders kProfiler = {"profiler/cupti", "profiler/calibrate", "profiler/record", "profiler/injection",
                           "profiler/torch"};
const Folders kRest = {"reports", "cli"};

Folders operator+(Folders left, const Folders& right) {
    left.insert(right.begin(), right.end());
    return left;
}

const Folders kEverything = kScenarios + kPlanner + kExecutor + kProfiler + kRest;

using Table = std::map<std::string, Folders>;

void add_planner(Table& table) {
    Folders usable = kScenarios;
    for (const char* leaf : {"layers", "rules", "program", "memory", "simulator", "search"}) {
        const std::string folder = std::string("planner/") + leaf;
        table[folder] = usable;
        usable.insert(folder);
    }
}

void add_executor(Table& table) {
    Folders usable = {"scenarios/types"};
    for (const char* leaf : {"cuda", "workload", "engine", "ranks"}) {
        const std::string folder = std::string("executor/") + leaf;
        table[folder] = usable;
        usable.insert(folder);
    }
    // The calls that it runs are the layers' contract (planner/layers/kernel_call.hpp).
    table["executor/workload"] = table["executor/workload"] + Folders{"planner/layers"};
    table["executor/engine"] =
        table["executor/engine"] +
        Folders{"scenarios/recording", "planner/layers", "planner/program", "planner/memory", "profiler/cupti"};
}

void add_profiler(Table& table) {
    table["profiler/cupti"] = kScenarios;
    const Folders with_executor = kScenarios + kExecutor + Folders{"profiler/cupti", "profiler/injection"};
    // It runs single calls of layers.
    table["profiler/calibrate"] = with_executor + Folders{"planner/layers"};
    table["profiler/record"] = with_executor;
    table["profiler/injection"] = kScenarios + Folders{"profiler/cupti", "profiler/injection"};
    table["profiler/torch"] = kScenarios;
}

Table make_table() {
    Table table;
    table["scenarios/types"] = {};
    table["scenarios/reader"] = {"scenarios/types"};
    table["scenarios/recording"] = {"scenarios/types"};
    add_planner(table);
    add_executor(table);
    add_profiler(table);
    table["reports"] = kScenarios + kPlanner;
    table["cli"] = kEverything;
    table["tests"] = kEverything;
    table["benchmarks"] = kEverything;
    return table;
}

const Table& table() {
    static const Table made = make_table();
    return made;
}

/// Folders without a toolkit: a CUDA header there would make the whole planner need one.
bool builds_without_cuda(const std::string& folder) {
    return kScenarios.contains(folder) || kPlanner.contains(folder) || kRest.contains(folder);
}

bool is_cuda_header(const std::string& header) {
    constexpr std::array<std::string_view, 8> kPrefixes = {"cuda",   "cupti", "cudnn", "cublas",
                                                           "curand", "nccl",  "nvtx3", "cub/"};
    return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return header.starts_with(prefix); });
}

bool is_source(const fs::path& file) {
    static const Folders kExtensions = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".cc"};
    return kExtensions.contains(file.extension().string());
}

bool holds_no_source(const std::string& folder) {
    return folder.starts_with(".") || folder.starts_with("build") || folder == "out" || folder == "docs";
}

std::vector<fs::path> sources_below(const fs::path& root) {
    std::vector<fs::path> found;
    for (const auto& top : fs::directory_iterator(root)) {
        if (!top.is_directory() || holds_no_source(top.path().filename().string())) continue;
        for (const auto& entry : fs::recursive_directory_iterator(top)) {
            if (entry.is_regular_file() && is_source(entry.path())) found.push_back(entry.path());
        }
    }
    std::ranges::sort(found);
    return found;
}

struct Include {
    std::string header;
    bool quoted = false;
};

bool parse_include(const std::string& line, Include& include) {
    static const std::regex kPattern(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
    std::smatch match;
    if (!std::regex_search(line, match, kPattern)) return false;
    include = {match[2], match[1] == "\""};
    return true;
}

/// Why `folder` must not say this include; empty when it may.
std::string objection(const fs::path& root, const std::string& folder, const Include& include) {
    if (is_cuda_header(include.header) && builds_without_cuda(folder)) {
        return folder + " builds without the CUDA toolkit, so it may not include <" + include.header + ">";
    }
    const std::string target = folder_of(include.header);
    if (target.empty()) {
        if (!include.quoted) return "";  // a library
        return "\"" + include.header + "\" is not written from the root, or is in a folder the table does not know";
    }
    if (!include.quoted) return "<" + include.header + "> is ours: write it in quotes";
    if (!fs::exists(root / include.header)) return "\"" + include.header + "\" does not exist";
    if (target == folder || allowed_uses(folder).contains(target)) return "";
    return folder + " may not use " + target + " (\"" + include.header + "\")";
}

void check_file(const fs::path& root, const fs::path& path, std::vector<Violation>& violations) {
    const std::string file = fs::relative(path, root).generic_string();
    const std::string folder = folder_of(file);
    if (folder.empty()) {
        violations.push_back(
            {file, 0, "no rule says what this folder may use: add one to the table of tests/architecture"});
        return;
    }
    std::ifstream stream(path);
    std::string text;
    for (int line = 1; std::getline(stream, text); ++line) {
        Include include;
        if (!parse_include(text, include)) continue;
        std::string why = objection(root, folder, include);
        if (!why.empty()) violations.push_back({file, line, std::move(why)});
    }
}

}  // namespace

std::string to_string(const Violation& violation) {
    return violation.file + ":" + std::to_string(violation.line) + ": " + violation.why;
}

std::string folder_of(const std::string& file) {
    const std::size_t first = file.find('/');
    if (first == std::string::npos) return "";
    std::string top = file.substr(0, first);
    if (table().contains(top)) return top;
    std::string leaf = file.substr(0, file.find('/', first + 1));
    if (leaf == file || !table().contains(leaf)) leaf.clear();
    return leaf;
}

std::set<std::string> allowed_uses(const std::string& folder) { return table().at(folder); }

std::vector<Violation> find_violations(const fs::path& root) {
    std::vector<Violation> violations;
    for (const fs::path& path : sources_below(root)) check_file(root, path, violations);
    std::ranges::sort(violations, {}, [](const Violation& v) { return std::tie(v.file, v.line); });
    return violations;
}

std::size_t count_sources(const fs::path& root) { return sources_below(root).size(); }

}  // namespace stowage::architecture
