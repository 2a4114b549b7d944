#include "scenarios/recording/integer_columns.hpp"

#include <array>
#include <charconv>
#include <optional>

namespace stowage::recording {
namespace {

constexpr int kBase = 36;
constexpr std::size_t kLineLength = 500;
constexpr std::size_t kMostShown = 24;

void append_number(std::string& text, std::int64_t number) {
    std::array<char, 16> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, kBase).ptr;
    text.append(digits.data(), end);
}

void append_run(std::vector<std::string>& lines, std::int64_t value, std::size_t count) {
    if (lines.empty() || lines.back().size() > kLineLength) lines.emplace_back();
    std::string& line = lines.back();
    if (!line.empty()) line += ',';
    append_number(line, value);
    if (count == 1) return;
    line += '*';
    append_number(line, static_cast<std::int64_t>(count));
}

std::optional<std::int64_t> number_of(std::string_view text) {
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, number, kBase);
    if (read.ec != std::errc{} || read.ptr != end) return std::nullopt;
    return number;
}

struct Run {
    std::int64_t value = 0;
    std::size_t count = 1;
};

std::optional<Run> run_of(std::string_view text) {
    const std::size_t star = text.find('*');
    const auto value = number_of(text.substr(0, star));
    if (!value) return std::nullopt;
    if (star == std::string_view::npos) return Run{*value, 1};
    const auto count = number_of(text.substr(star + 1));
    if (!count || *count < 1) return std::nullopt;
    return Run{*value, static_cast<std::size_t>(*count)};
}

std::string quoted(std::string_view text) {
    return "'" + std::string(text.substr(0, kMostShown)) + (text.size() > kMostShown ? "...'" : "'");
}

std::string rows_fault(std::size_t rows, const std::string& found) {
    return "expected " + std::to_string(rows) + " integers, found " + found;
}

/// Adds what a line holds. Result: what is wrong with it.
std::optional<std::string> read_line(std::string_view line, std::size_t rows, Column& column) {
    for (std::size_t begin = 0; begin <= line.size();) {
        const std::size_t end = std::min(line.find(',', begin), line.size());
        const std::string_view text = line.substr(begin, end - begin);
        const auto run = run_of(text);
        if (!run) return "expected an integer in base 36, as '-1z' or '0*a', found " + quoted(text);
        if (run->count > rows - column.size()) return rows_fault(rows, "more");
        column.insert(column.end(), run->count, run->value);
        begin = end + 1;
    }
    return std::nullopt;
}

}  // namespace

std::vector<std::string> lines_of(const Column& column) {
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < column.size();) {
        std::size_t end = begin + 1;
        while (end < column.size() && column[end] == column[begin]) ++end;
        append_run(lines, column[begin], end - begin);
        begin = end;
    }
    return lines;
}

std::variant<Column, ColumnFault> column_of(const std::vector<std::string>& lines, std::size_t rows) {
    Column column;
    for (std::size_t line = 0; line < lines.size(); ++line)
        if (const auto reason = read_line(lines[line], rows, column)) return ColumnFault{line, *reason};
    if (column.size() < rows)
        return ColumnFault{lines.empty() ? 0 : lines.size() - 1, rows_fault(rows, std::to_string(column.size()))};
    return column;
}

}  // namespace stowage::recording
