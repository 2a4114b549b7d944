#pragma once

#include <compare>
#include <concepts>
#include <cstdint>

namespace stowage::types {

/// A count of bytes. Only sums and differences of bytes are bytes; a product is a count of elements
/// times an element size and is written `Bytes{elements * size_of(type)}` where both are plain numbers.
/// Units: bytes; signed, so that a difference may be negative.
struct Bytes {
    std::int64_t count = 0;

    friend constexpr auto operator<=>(Bytes, Bytes) = default;
    constexpr Bytes& operator+=(Bytes other) {
        count += other.count;
        return *this;
    }
    constexpr Bytes& operator-=(Bytes other) {
        count -= other.count;
        return *this;
    }
};

constexpr Bytes operator+(Bytes left, Bytes right) { return Bytes{left.count + right.count}; }
constexpr Bytes operator-(Bytes left, Bytes right) { return Bytes{left.count - right.count}; }

template <class Left, class Right>
concept Addable = requires(Left left, Right right) {
    left + right;
};
static_assert(Addable<Bytes, Bytes>);
static_assert(!Addable<Bytes, int>);

inline namespace literals {
constexpr Bytes operator""_B(unsigned long long count) { return Bytes{static_cast<std::int64_t>(count)}; }
constexpr Bytes operator""_KiB(unsigned long long count) { return Bytes{static_cast<std::int64_t>(count) << 10}; }
constexpr Bytes operator""_MiB(unsigned long long count) { return Bytes{static_cast<std::int64_t>(count) << 20}; }
constexpr Bytes operator""_GiB(unsigned long long count) { return Bytes{static_cast<std::int64_t>(count) << 30}; }
}  // namespace literals

/// Binary units for printing only.
constexpr double in_mib(Bytes bytes) { return static_cast<double>(bytes.count) / (1 << 20); }
constexpr double in_gib(Bytes bytes) { return static_cast<double>(bytes.count) / (1 << 30); }

}  // namespace stowage::types
