#include "reports/table.hpp"

#include <algorithm>
#include <utility>

#include "scenarios/types/check.hpp"

namespace stowage::reports {

Table::Table(std::vector<Column> columns, std::size_t indent) : columns_(std::move(columns)), indent_(indent) {}

void Table::add(std::vector<std::string> cells) {
    STOWAGE_CHECK(cells.size() == columns_.size(), "a row has a cell for each column");
    rows_.push_back(std::move(cells));
}

namespace {

constexpr std::size_t kTerminal = 100;

}  // namespace

/// The last column, if it holds words, is broken into lines under its own heading.
std::string Table::last_cell(const std::string& cell, const std::vector<std::size_t>& widths) const {
    if (columns_.back().align != Align::left) return cell;
    std::size_t begin = indent_;
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) begin += widths[i] + 2;
    return wrapped(cell, begin, kTerminal);
}

std::string Table::line(std::vector<std::string> cells, const std::vector<std::size_t>& widths) const {
    cells.back() = last_cell(cells.back(), widths);
    std::string text(indent_, ' ');
    for (std::size_t i = 0; i < cells.size(); ++i) {
        const std::string padding(widths[i] - std::min(widths[i], cells[i].size()), ' ');
        if (i > 0) text += "  ";
        text += columns_[i].align == Align::left ? cells[i] + padding : padding + cells[i];
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text + '\n';
}

std::string Table::text() const {
    std::vector<std::string> headings;
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        headings.push_back(columns_[i].heading);
        std::size_t width = columns_[i].heading.size();
        for (const auto& row : rows_) width = std::max(width, row[i].size());
        widths.push_back(width);
    }
    std::string text = line(headings, widths);
    for (const auto& row : rows_) text += line(row, widths);
    return text;
}

std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
    std::string result;
    std::size_t column = indent;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        const std::size_t word = end - at;
        if (column > indent && column + 1 + word > width) {
            result += '\n' + std::string(indent, ' ');
            column = indent;
        } else if (at > 0) {
            result += ' ';
            ++column;
        }
        result.append(text, at, word);
        column += word;
        at = end + 1;
    }
    return result;
}

}  // namespace stowage::reports
