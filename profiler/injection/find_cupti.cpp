#include "profiler/injection/find_cupti.hpp"

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>
#include <system_error>

#include "profiler/injection/child_process.hpp"

namespace stowage::profiler {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libcupti.so.13";

std::string value_of(const Environment& environment, const std::string& name) {
    const auto found = environment.find(name);
    return found == environment.end() ? "" : found->second;
}

bool is_file(const fs::path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

std::optional<fs::path> in_folders(const std::vector<fs::path>& folders) {
    for (const fs::path& folder : folders)
        if (is_file(folder / kName)) return folder / kName;
    return std::nullopt;
}

std::vector<fs::path> parts_of(const std::string& text, char separator) {
    std::vector<fs::path> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);)
        if (!part.empty()) parts.emplace_back(part);
    return parts;
}

/// As a shell finds a command.
std::optional<fs::path> on_path(const std::string& name, const Environment& environment) {
    if (name.find('/') != std::string::npos) return is_file(name) ? std::optional<fs::path>(name) : std::nullopt;
    for (const fs::path& folder : parts_of(value_of(environment, "PATH"), ':'))
        if (is_file(folder / name)) return folder / name;
    return std::nullopt;
}

bool is_python(const fs::path& program) {
    static const std::regex kPython(R"(python[0-9.]*)");
    return std::regex_match(program.filename().string(), kPython);
}

/// What the first line of a script says that it is run by; empty of a program.
std::string interpreter_line(const fs::path& file) {
    std::ifstream stream(file);
    std::string line;
    std::getline(stream, line);
    return line.starts_with("#!") ? line.substr(2) : "";
}

std::vector<fs::path> python_folders(const std::string& python, const Environment& environment) {
    return parts_of(output_of({python, "-c", "import sys; print('\\n'.join(p for p in sys.path if p))"}, environment),
                    '\n');
}

std::vector<fs::path> toolkit_folders(const Environment& environment) {
    std::vector<fs::path> folders = parts_of(value_of(environment, "LD_LIBRARY_PATH"), ':');
    std::vector<fs::path> toolkits = {"/usr/local/cuda", "/usr/local/cuda-13"};
    for (const char* name : {"CUDA_PATH", "CUDA_HOME"})
        if (const std::string home = value_of(environment, name); !home.empty())
            toolkits.insert(toolkits.begin(), home);
    for (const fs::path& toolkit : toolkits)
        for (const char* inner : {"lib64", "extras/CUPTI/lib64", "lib"}) folders.push_back(toolkit / inner);
    folders.emplace_back("/usr/lib/x86_64-linux-gnu");
    folders.emplace_back("/usr/lib64");
    return folders;
}

}  // namespace

std::optional<std::string> python_of(const std::vector<std::string>& command, const Environment& environment) {
    if (command.empty()) return std::nullopt;
    if (is_python(command.front())) return command.front();
    const std::optional<fs::path> file = on_path(command.front(), environment);
    if (!file) return std::nullopt;
    std::istringstream words(interpreter_line(*file));
    for (std::string word; words >> word;)  // also "#!/usr/bin/env python3"
        if (is_python(word)) return word;
    return std::nullopt;
}

std::optional<fs::path> cupti_below(const std::vector<fs::path>& folders) {
    std::vector<fs::path> places;
    for (const fs::path& folder : folders)
        for (const char* inner : {"nvidia/cu13/lib", "nvidia/cuda_cupti/lib", "torch/lib"})
            places.push_back(folder / inner);
    return in_folders(places);
}

std::optional<fs::path> find_cupti(const std::vector<std::string>& command, const Environment& environment) {
    fs::path named = value_of(environment, "NVTX_INJECTION64_PATH");
    if (named.filename().string().starts_with("libcupti.so") && is_file(named)) return named;
    if (const std::optional<std::string> python = python_of(command, environment))
        if (std::optional<fs::path> found = cupti_below(python_folders(*python, environment))) return found;
    return in_folders(toolkit_folders(environment));
}

}  // namespace stowage::profiler
