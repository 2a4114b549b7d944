#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace stowage::reader {

/// A place in a file. Lines and columns count from 1, columns in bytes; line 0 is the file as a whole.
struct Mark {
    int line = 0;
    int column = 0;
};

/// A text file in memory: UTF-8, no byte order mark, lines ended by '\n'.
class SourceFile {
public:
    SourceFile(std::string name, std::string text);
    /// The name as the user gave it; errors begin with it.
    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] const std::string& text() const { return text_; }
    /// Line `number` (from 1) without its end; empty beyond the last.
    [[nodiscard]] std::string_view line(int number) const;

private:
    std::string name_;
    std::string text_;
    std::vector<std::size_t> starts_;
};

using SourcePointer = std::shared_ptr<const SourceFile>;

inline constexpr std::size_t kLargestFile = 4 << 20;  ///< bytes; people write these files

/// Length of the UTF-8 sequence that starts at byte `at`, 0 if none does (overlong forms and surrogates included).
std::size_t letter_length(std::string_view text, std::size_t at);

/// What came of opening a file: a source, or why there is none.
struct LoadedSource {
    SourcePointer source;  ///< set whenever there is text to point at, even if it is unusable
    std::string problem;   ///< empty: all is well
    Mark at;               ///< of the problem
    std::string hint;
};

/// Reads a file whole. Never throws for what is wrong with the file: missing, a directory, unreadable, larger than
/// kLargestFile, binary, not UTF-8. A UTF-8 byte order mark is dropped and CRLF becomes LF.
LoadedSource load_source(const std::filesystem::path& path);

}  // namespace stowage::reader
