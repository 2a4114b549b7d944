#include "scenarios/reader/source_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

namespace stowage::reader {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

LoadedSource failure(std::string problem, std::string hint = {}) {
    return LoadedSource{nullptr, std::move(problem), Mark{}, std::move(hint)};
}

/// Why the path cannot be read as a file, or nothing.
std::string unusable(const std::filesystem::path& path) {
    std::error_code code;
    const auto status = std::filesystem::status(path, code);
    if (status.type() == std::filesystem::file_type::not_found) return "does not exist";
    if (code) return "cannot be opened: " + code.message();
    if (std::filesystem::is_directory(status)) return "is a directory, expected a YAML file";
    if (!std::filesystem::is_regular_file(status)) return "is not a regular file, expected a YAML file";
    const auto size = std::filesystem::file_size(path, code);
    if (code) return "cannot be opened: " + code.message();
    if (size > kLargestFile) return "is larger than 4 MiB, expected a file written by hand";
    return {};
}

std::string with_unix_line_ends(std::string_view raw) {
    std::string text;
    text.reserve(raw.size());
    for (std::size_t i = 0; i < raw.size(); ++i) {
        if (raw[i] != '\r') {
            text += raw[i];
        } else if (i + 1 == raw.size() || raw[i + 1] != '\n') {
            text += '\n';
        }
    }
    return text;
}

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

/// The first thing in the text that YAML of this project cannot hold.
void find_bad_bytes(LoadedSource& loaded) {
    const std::string& text = loaded.source->text();
    int line = 1;
    std::size_t line_start = 0;
    for (std::size_t at = 0; at < text.size();) {
        const auto byte = static_cast<unsigned char>(text[at]);
        const std::size_t length = letter_length(text, at);
        const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
        if (length == 0 || control) {
            loaded.problem = control ? "found a control character, expected text: is this a binary file?"
                                     : "found a byte that is not UTF-8, expected text in UTF-8";
            loaded.at = Mark{line, static_cast<int>(at - line_start) + 1};
            return;
        }
        at += length;
        if (byte == '\n') {
            ++line;
            line_start = at;
        }
    }
}

/// YAML forbids tabs in indentation; said here because parsers say it obscurely.
void find_tab_indentation(LoadedSource& loaded) {
    const std::string& text = loaded.source->text();
    int line = 1;
    for (std::size_t start = 0; start < text.size(); ++line) {
        const std::size_t end = std::min(text.find('\n', start), text.size());
        const std::string_view content = std::string_view(text).substr(start, end - start);
        const std::size_t first = content.find_first_not_of(" \t");
        const std::size_t tab = content.substr(0, std::min(first, content.size())).find('\t');
        if (first != std::string_view::npos && tab != std::string_view::npos && content[first] != '#') {
            loaded.problem = "found a tab in the indentation, expected spaces";
            loaded.at = Mark{line, static_cast<int>(tab) + 1};
            return;
        }
        start = end + 1;
    }
}

}  // namespace

std::size_t letter_length(std::string_view text, std::size_t at) {
    const auto byte = [&](std::size_t offset) {
        return at + offset < text.size() ? static_cast<unsigned char>(text[at + offset]) : 0U;
    };
    const unsigned lead = byte(0);
    const unsigned second = byte(1);
    if (lead < 0x80) return 1;
    std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)) return 0;
    if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return 0;
    for (std::size_t offset = 1; offset < length; ++offset)
        if (!is_continuation(static_cast<unsigned char>(byte(offset)))) return 0;
    return length;
}

SourceFile::SourceFile(std::string name, std::string text) : name_(std::move(name)), text_(std::move(text)) {
    starts_.push_back(0);
    for (std::size_t i = 0; i < text_.size(); ++i)
        if (text_[i] == '\n') starts_.push_back(i + 1);
}

std::string_view SourceFile::line(int number) const {
    if (number < 1 || static_cast<std::size_t>(number) > starts_.size()) return {};
    const std::size_t start = starts_[static_cast<std::size_t>(number) - 1];
    const std::size_t end = std::min(text_.find('\n', start), text_.size());
    return std::string_view(text_).substr(start, end - start);
}

LoadedSource load_source(const std::filesystem::path& path) {
    if (std::string problem = unusable(path); !problem.empty()) return failure(std::move(problem));
    errno = 0;
    std::ifstream stream(path, std::ios::binary);
    if (!stream) return failure(std::string("cannot be opened: ") + std::strerror(errno));
    std::error_code code;
    const auto size = std::filesystem::file_size(path, code);
    if (code || size > kLargestFile) return failure("changed while it was opened");
    std::string raw(static_cast<std::size_t>(size), '\0');
    stream.read(raw.data(), static_cast<std::streamsize>(raw.size()));
    raw.resize(static_cast<std::size_t>(stream.gcount()));
    std::string_view content = raw;
    if (content.substr(0, kByteOrderMark.size()) == kByteOrderMark) content.remove_prefix(kByteOrderMark.size());
    LoadedSource loaded;
    loaded.source = std::make_shared<const SourceFile>(path.string(), with_unix_line_ends(content));
    find_bad_bytes(loaded);
    if (loaded.problem.empty()) find_tab_indentation(loaded);
    return loaded;
}

}  // namespace stowage::reader
