#include "scenarios/reader/diagnostics.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace stowage::reader {
namespace {

constexpr std::size_t kMostErrors = 100;
constexpr std::size_t kLongestLine = 110;
constexpr std::size_t kLongestExcerpt = 60;

/// The text with a question mark in place of every byte that a terminal should not get; tabs stay.
std::string printable(std::string_view text) {
    std::string shown;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t length = letter_length(text, at);
        const auto byte = static_cast<unsigned char>(text[at]);
        const bool control = (byte < 0x20 && byte != '\t') || byte == 0x7F;
        if (length == 0 || control)
            shown += '?';
        else
            shown += text.substr(at, length);
        at += std::max<std::size_t>(length, 1);
    }
    return shown;
}

bool starts_letter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

std::size_t letters(std::string_view text) {
    const std::string shown = printable(text);
    return static_cast<std::size_t>(std::count_if(shown.begin(), shown.end(), starts_letter));
}

/// `position` moved back to the start of a letter.
std::size_t letter_start(std::string_view text, std::size_t position) {
    while (position > 0 && position < text.size() && !starts_letter(text[position])) --position;
    return std::min(position, text.size());
}

/// The line and the caret under byte `column` (from 1); of a long line the part around the caret.
std::string marked_line(std::string_view line, int column) {
    const std::size_t caret = std::min(static_cast<std::size_t>(std::max(column, 1)) - 1, line.size());
    std::size_t begin = 0;
    std::size_t end = line.size();
    if (line.size() > kLongestLine) {
        begin = letter_start(line, caret > kLongestLine / 2 ? caret - kLongestLine / 2 : 0);
        end = letter_start(line, begin + kLongestLine);
    }
    std::string shown = std::string("\n  ") + (begin > 0 ? "..." : "");
    shown += printable(line.substr(begin, end - begin));
    if (end < line.size()) shown += "...";
    shown += std::string("\n  ") + (begin > 0 ? "   " : "");
    for (char byte : printable(line.substr(begin, caret - begin)))
        if (starts_letter(byte)) shown += byte == '\t' ? '\t' : ' ';
    return shown + "^";
}

std::string place(const Location& location) {
    std::string text = location.source ? location.source->name() : std::string();
    if (location.at.line == 0) return text;
    const std::string_view line = location.source->line(location.at.line);
    const std::size_t before = std::min(static_cast<std::size_t>(std::max(location.at.column, 1)) - 1, line.size());
    text += ':';
    text += std::to_string(location.at.line);
    text += ':';
    return text + std::to_string(letters(line.substr(0, before)) + 1);
}

}  // namespace

std::string excerpt(std::string_view text) {
    std::string shown = printable(text.substr(0, letter_start(text, kLongestExcerpt)));
    std::replace(shown.begin(), shown.end(), '\t', ' ');
    return text.size() > kLongestExcerpt ? shown + "..." : shown;
}

std::string in_quotes(std::string_view text) {
    std::string shown(1, '\'');
    shown += excerpt(text);
    shown += '\'';
    return shown;
}

std::string format_error(const Location& location, std::string_view message, std::string_view hint) {
    std::string text = place(location) + ": error: ";
    if (!location.path.empty()) text += location.path + ": ";
    text += message;
    if (location.at.line > 0) text += marked_line(location.source->line(location.at.line), location.at.column);
    if (!hint.empty()) text += "\nhint: " + std::string(hint);
    return text;
}

std::string format_place(const Location& location) { return place(location); }

std::string format_note(const Location& location, std::string_view message) {
    std::string text = place(location) + ": ";
    if (!location.path.empty()) text += location.path + ": ";
    return text + std::string(message);
}

void Diagnostics::open(const std::string& file) { files_.push_back(file); }

void Diagnostics::add(Location location, std::string message, std::string hint) {
    const std::string name = location.source ? location.source->name() : std::string();
    const auto file = static_cast<std::size_t>(std::find(files_.begin(), files_.end(), name) - files_.begin());
    entries_.push_back(Entry{std::move(location), std::move(message), std::move(hint), file});
}

std::string Diagnostics::text() const {
    std::vector<const Entry*> ordered;
    for (const Entry& entry : entries_) ordered.push_back(&entry);
    const auto key = [](const Entry* entry) {
        return std::tuple(entry->file, entry->location.at.line, entry->location.at.column);
    };
    std::stable_sort(ordered.begin(), ordered.end(),
                     [&](const Entry* left, const Entry* right) { return key(left) < key(right); });
    std::string all;
    for (std::size_t i = 0; i < std::min(ordered.size(), kMostErrors); ++i) {
        if (i > 0) all += "\n";
        all += format_error(ordered[i]->location, ordered[i]->message, ordered[i]->hint);
    }
    if (ordered.size() > kMostErrors) all += "\nand " + std::to_string(ordered.size() - kMostErrors) + " more errors";
    return all;
}

void Diagnostics::throw_if_any() const {
    if (!empty()) throw types::InputError(text());
}

}  // namespace stowage::reader
