#include "planner/rules/rule_pages.hpp"

#include <algorithm>
#include <cctype>

#include "planner/rules/legality.hpp"

namespace stowage::rules {
namespace {

bool same_id(std::string_view left, std::string_view right) {
    const auto lower = [](char letter) { return std::tolower(static_cast<unsigned char>(letter)); };
    return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                      [&](char one, char other) { return lower(one) == lower(other); });
}

}  // namespace

std::span<const RulePage> rule_pages() {
    static const std::vector<RulePage> all = [] {
        std::vector<RulePage> pages;
        for (const Rule& rule : rules())
            pages.push_back({rule.id, rule.sets, rule.severity, JudgedOn::scenario, condition_of(rule), rule.reason,
                             rule.nearest_legal, rule.source});
        pages.insert(pages.end(), argument_pages().begin(), argument_pages().end());
        return pages;
    }();
    return all;
}

std::vector<RulePage> pages_of(std::string_view id) {
    std::vector<RulePage> found;
    for (const RulePage& page : rule_pages())
        if (same_id(page.id, id)) found.push_back(page);
    return found;
}

}  // namespace stowage::rules
