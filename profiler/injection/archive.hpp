#pragma once

// Numbers, texts and lists as bytes, and back: for files that the same machine writes and reads minutes later. A type
// says once what it consists of, `fields(archive, value)`, for both directions.

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "scenarios/types/bytes.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::profiler {

template <class T>
concept Plain = std::is_integral_v<T> || std::is_enum_v<T>;

/// What `fields` is written for: T, const where it is written.
template <class T, class Expected>
concept Like = std::is_same_v<std::remove_const_t<T>, Expected>;

class ByteWriter {
public:
    template <class... Values>
    void operator()(const Values&... values) {
        (put(values), ...);
    }
    [[nodiscard]] const std::string& bytes() const { return bytes_; }

private:
    template <Plain T>
    void put(T value) {
        // A byte of its own, since a bool may hold nothing but 0 and 1.
        char raw[sizeof(T)];  // NOLINT(modernize-avoid-c-arrays)
        std::memcpy(raw, &value, sizeof(T));
        bytes_.append(raw, sizeof(T));
    }
    void put(types::Nanoseconds value) { put(static_cast<std::int64_t>(value.count())); }
    void put(types::Bytes value) { put(value.count); }
    void put(const std::string& text) {
        put(std::uint64_t{text.size()});
        bytes_ += text;
    }
    template <class T>
    void put(const std::vector<T>& list) {
        put(std::uint64_t{list.size()});
        for (const T& element : list) put(element);
    }
    template <class T>
    requires std::is_class_v<T>
    void put(const T& value) { fields(*this, value); }

    std::string bytes_;
};

/// The file ends too early, or a value is none that its type has.
class BrokenBytes : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

class ByteReader {
public:
    explicit ByteReader(std::string_view bytes) : all_(bytes.size()), left_(bytes) {}

    /// Throws: BrokenBytes.
    template <class... Values>
    void operator()(Values&... values) {
        (get(values), ...);
    }
    [[nodiscard]] bool is_done() const { return left_.empty(); }
    [[nodiscard]] std::size_t position() const { return all_ - left_.size(); }

private:
    std::string_view next(std::uint64_t size) {
        if (size > left_.size())
            throw BrokenBytes("it ends at byte " + std::to_string(all_) + ", amid what began at byte " +
                              std::to_string(position()));
        const std::string_view found = left_.substr(0, size);
        left_.remove_prefix(size);
        return found;
    }
    template <Plain T>
    void get(T& value) {
        const std::string_view raw = next(sizeof(T));
        std::memcpy(&value, raw.begin(), raw.size());
    }
    void get(bool& value) {
        std::uint8_t raw = 0;
        get(raw);
        if (raw > 1) throw BrokenBytes("byte " + std::to_string(position() - 1) + " is neither yes nor no");
        value = raw == 1;
    }
    void get(types::Nanoseconds& value) {
        std::int64_t count = 0;
        get(count);
        value = types::Nanoseconds(count);
    }
    void get(types::Bytes& value) { get(value.count); }
    void get(std::string& text) {
        std::uint64_t size = 0;
        get(size);
        text = next(size);
    }
    template <class T>
    void get(std::vector<T>& list) {
        std::uint64_t size = 0;
        get(size);
        if (size > left_.size()) next(size);  // every element takes a byte or more: throws before memory is asked for
        list.resize(size);
        for (T& element : list) get(element);
    }
    template <class T>
    requires std::is_class_v<T>
    void get(T& value) { fields(*this, value); }

    std::size_t all_;
    std::string_view left_;
};

}  // namespace stowage::profiler
