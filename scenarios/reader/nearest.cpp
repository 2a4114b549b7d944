#include "scenarios/reader/nearest.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <vector>

namespace stowage::reader {
namespace {

constexpr std::size_t kLongestWord = 64;

bool same_letter(char left, char right) {
    const auto lower = [](char letter) { return std::tolower(static_cast<unsigned char>(letter)); };
    return lower(left) == lower(right) || (left == '-' && right == '_');
}

/// Insertions, deletions and replacements that turn one word into the other; case and '-' for '_' are free.
std::size_t edit_distance(std::string_view left, std::string_view right) {
    std::vector<std::size_t> row(right.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= left.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= right.size(); ++j) {
            const std::size_t replaced = diagonal + (same_letter(left[i - 1], right[j - 1]) ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
        }
    }
    return row.back();
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
    if (word.empty() || word.size() > kLongestWord) return {};
    std::size_t best = std::min(std::max<std::size_t>(2, word.size() / 3), word.size() - 1) + 1;
    std::string_view found;
    for (std::string_view candidate : candidates) {
        const std::size_t distance = edit_distance(word, candidate);
        if (distance >= best) continue;
        best = distance;
        found = candidate;
    }
    return found;
}

}  // namespace stowage::reader
