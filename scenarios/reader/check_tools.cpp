#include "scenarios/reader/check_tools.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace stowage::reader {

std::int64_t product(std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<std::int64_t>::max() : result;
}

std::int64_t product(std::initializer_list<std::int64_t> factors) {
    std::int64_t result = 1;
    for (const std::int64_t factor : factors) result = product(result, factor);
    return result;
}

bool unread(const Gathered& gathered, std::string_view path) {
    for (;;) {
        if (gathered.failed.find(path) != gathered.failed.end()) return true;
        if (path.empty()) return false;
        const std::size_t dot = path.rfind('.');
        path = dot == std::string_view::npos ? std::string_view{} : path.substr(0, dot);
    }
}

bool all_read(const Gathered& gathered, Paths paths) {
    return std::none_of(paths.begin(), paths.end(), [&](std::string_view path) { return unread(gathered, path); });
}

void report(Gathered& gathered, std::string_view path, std::string message, std::string hint) {
    gathered.diagnostics.add(gathered.where.find(path), std::move(message), std::move(hint));
}

void require_multiple(Gathered& gathered, std::string_view path, const std::string& what, std::int64_t value,
                      const std::string& name, std::int64_t divisor) {
    if (divisor <= 0 || value % divisor == 0) return;
    report(gathered, path, what + " " + number(value) + " is not a multiple of " + name + " " + number(divisor));
}

void require(Gathered& gathered, std::string_view path, bool missing, const std::string& other) {
    if (missing && !unread(gathered, path)) report(gathered, path, "needs " + other);
}

}  // namespace stowage::reader
