#pragma once

#include <string>
#include <vector>

namespace stowage::reports {

/// Lines of aligned columns for a terminal, two spaces apart.
class Table {
public:
    enum class Align : bool { left, right };
    struct Column {
        std::string heading;
        Align align = Align::right;
    };

    /// `indent`: spaces before each line.
    explicit Table(std::vector<Column> columns, std::size_t indent = 2);
    /// As many cells as columns.
    void add(std::vector<std::string> cells);
    /// Headings, then rows; each line with its end, no spaces at the end. A last column of words is broken to fit 100
    /// columns.
    [[nodiscard]] std::string text() const;

private:
    [[nodiscard]] std::string last_cell(const std::string& cell, const std::vector<std::size_t>& widths) const;
    [[nodiscard]] std::string line(std::vector<std::string> cells, const std::vector<std::size_t>& widths) const;

    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
    std::size_t indent_;
};

/// `text` in lines of at most `width` columns, broken at spaces; the second line and later begin with `indent` spaces.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width = 100);

}  // namespace stowage::reports
