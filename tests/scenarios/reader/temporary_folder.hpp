#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>

namespace stowage::reader::testing {

/// A fresh folder that is the current one until the guard goes, so that file names in errors are short.
class TemporaryFolder {
public:
    TemporaryFolder() : before_(std::filesystem::current_path()) {
        std::string pattern = (std::filesystem::temp_directory_path() / "stowage-reader-XXXXXX").string();
        folder_ = mkdtemp(pattern.data());
        std::filesystem::current_path(folder_);
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::current_path(before_, ignored);
        std::filesystem::remove_all(folder_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

private:
    std::filesystem::path before_;
    std::filesystem::path folder_;
};

inline void write_file(const std::string& name, const std::string& text) {
    std::ofstream(name, std::ios::binary) << text;
}

inline std::string read_text(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

/// The valid files that the tests edit.
inline std::filesystem::path cases_folder() {
    return std::filesystem::path(STOWAGE_SOURCE_DIR) / "tests/scenarios/reader/cases";
}

inline void write_valid_files() {
    for (const char* name : {"scenario.yaml", "model.yaml", "machine.yaml"})
        write_file(name, read_text(cases_folder() / name));
}

/// Replaces the only occurrence of `before` in the file. Throws: std::runtime_error if it is not there exactly once.
inline void edit_file(const std::string& name, const std::string& before, const std::string& after) {
    std::string text = read_text(name);
    const std::size_t at = text.find(before);
    if (at == std::string::npos || text.find(before, at + 1) != std::string::npos)
        throw std::runtime_error("'" + before + "' does not stand exactly once in " + name);
    write_file(name, text.replace(at, before.size(), after));
}

}  // namespace stowage::reader::testing
