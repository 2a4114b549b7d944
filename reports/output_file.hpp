#pragma once

#include <cstdio>
#include <filesystem>
#include <string_view>

namespace stowage::reports {

/// A file that is there whole or not at all: written beside its place under a temporary name and renamed by `commit`.
/// Without `commit` nothing is left behind and a file that was there before stays as it was.
/// Throws: types::InputError naming the file and what failed (no such folder, not writable, no space left).
class OutputFile {
public:
    explicit OutputFile(std::filesystem::path path);
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    OutputFile(OutputFile&&) = delete;
    OutputFile& operator=(OutputFile&&) = delete;
    ~OutputFile();

    void write(std::string_view text);
    void commit();

private:
    [[noreturn]] void fail(std::string_view doing, int code) const;

    std::filesystem::path path_;
    std::filesystem::path temporary_;
    std::FILE* file_ = nullptr;
};

/// Writes a whole file so.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace stowage::reports
