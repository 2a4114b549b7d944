#pragma once

#include <string_view>

namespace stowage::types {

/// Throws std::logic_error naming the broken condition and its place.
[[noreturn]] void fail_check(const char* condition, const char* file, int line, std::string_view message);

}  // namespace stowage::types

/// Our own invariants, tested in every build. A failure is a bug of stowage, never of its input (exit code 1).
#define STOWAGE_CHECK(condition, message)                                          \
    do {                                                                           \
        if (!(condition)) [[unlikely]]                                             \
            ::stowage::types::fail_check(#condition, __FILE__, __LINE__, message); \
    } while (false)
