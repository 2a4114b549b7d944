#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scenarios/reader/source_file.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::reader {

/// Where a value stands: which file, where in it, and its path inside that file.
struct Location {
    SourcePointer source;
    Mark at;
    std::string path;
};

/// One error as the user sees it, without a line end after its last line:
///     file:line:column: error: path: message
///       the offending line
///       ^
///     hint: ...
std::string format_error(const Location& location, std::string_view message, std::string_view hint = {});

/// `file:line:column`, or the file's name where no line is known.
std::string format_place(const Location& location);

/// `file:line:column: path: message` in one line.
std::string format_note(const Location& location, std::string_view message);

/// Text from a file made fit for a message: one line, printable, at most 60 characters.
std::string excerpt(std::string_view text);
/// An excerpt between single quotes.
std::string in_quotes(std::string_view text);

/// Collects every error of a run of the reader.
class Diagnostics {
public:
    /// Files are reported in the order in which they were opened.
    void open(const std::string& file);
    void add(Location location, std::string message, std::string hint = {});
    [[nodiscard]] bool empty() const { return entries_.empty(); }
    /// All errors, by file, line and column; after the first 100 their number.
    [[nodiscard]] std::string text() const;
    /// Throws: types::InputError with text() if there was any error.
    void throw_if_any() const;

private:
    struct Entry {
        Location location;
        std::string message;
        std::string hint;
        std::size_t file = 0;
    };
    std::vector<Entry> entries_;
    std::vector<std::string> files_;
};

}  // namespace stowage::reader
