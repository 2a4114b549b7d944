#include "tests/docs/page.hpp"

#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "tests/support/temporary_folder.hpp"

namespace stowage::docs {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndent = "    ";
constexpr std::string_view kPrompt = "    $ ";

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

bool is_output(const std::string& line) { return line.starts_with(kIndent) && !line.starts_with(kPrompt); }

/// Where the output behind the command in line `command` ends.
std::size_t end_of_output(const std::vector<std::string>& lines, std::size_t command) {
    std::size_t end = command + 1;
    while (end < lines.size() && is_output(lines[end])) ++end;
    return end;
}

}  // namespace

std::vector<Example> examples_of(const std::string& page) {
    const std::vector<std::string> lines = lines_of(page);
    std::vector<Example> examples;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (!lines[i].starts_with(kPrompt)) continue;
        Example example{lines[i].substr(kPrompt.size()), {}, i + 1};
        for (std::size_t j = i + 1; j < end_of_output(lines, i); ++j)
            example.output += lines[j].substr(kIndent.size()) + "\n";
        examples.push_back(example);
    }
    return examples;
}

std::string with_outputs(const std::string& page, const std::vector<Example>& examples) {
    const std::vector<std::string> lines = lines_of(page);
    std::string text;
    std::size_t next = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        text += lines[i] + "\n";
        if (!lines[i].starts_with(kPrompt)) continue;
        for (const std::string& line : lines_of(examples.at(next).output)) text += std::string(kIndent) + line + "\n";
        ++next;
        i = end_of_output(lines, i) - 1;
    }
    return text;
}

std::vector<Example> run(std::vector<Example> examples) {
    const support::TemporaryFolder folder;
    const fs::path root(STOWAGE_SOURCE_DIR);
    for (const char* copied : {"docs/graphs", "scenarios/models", "scenarios/hardware"})
        fs::copy(root / copied, (fs::create_directories((folder / copied).parent_path()), folder / copied),
                 fs::copy_options::recursive);
    fs::create_directories(folder / "tests/data");
    fs::copy(root / "tests/data/megatron_recorded_memory.yaml", folder / "tests/data/megatron_recorded_memory.yaml");
    for (const auto& entry : fs::directory_iterator(root / "scenarios"))
        if (entry.path().extension() == ".yaml")
            fs::copy(entry.path(), folder / ("scenarios/" + entry.path().filename().string()));
    const std::string path = fs::path(STOWAGE_COMMAND).parent_path().string();
    for (Example& example : examples) {
        support::write_text(folder / "command", "set -e\n" + example.command + "\n");
        const std::string line =
            "cd '" + folder.path().string() + "' && PATH='" + path + "':\"$PATH\" sh command > output";
        if (std::system(line.c_str()) != 0) throw std::runtime_error("failed: " + example.command);
        example.output = support::file_text(folder / "output");
    }
    return examples;
}

}  // namespace stowage::docs
