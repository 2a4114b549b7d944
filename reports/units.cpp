#include "reports/units.hpp"

#include <fmt/format.h>

namespace stowage::reports {

std::string gib(std::int64_t bytes) { return fmt::format("{:.2f}", types::in_gib(types::Bytes{bytes})); }

std::string short_gib(std::int64_t bytes) {
    std::string text = gib(bytes);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text;
}

std::string milliseconds(double microseconds) { return fmt::format("{:.2f}", microseconds / 1e3); }

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

std::string grouped(std::int64_t number) {
    std::string text = std::to_string(number);
    const std::size_t digits_begin = number < 0 ? 1 : 0;
    for (std::size_t at = text.size(); at > digits_begin + 3;) {
        at -= 3;
        text.insert(at, 1, ',');
    }
    return text;
}

}  // namespace stowage::reports
