#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "reports/output_file.hpp"
#include "reports/trace.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::reports {

/// Writes the events of a trace one by one into its file.
class EventWriter {
public:
    explicit EventWriter(OutputFile& file);

    template <class... Arguments>
    void event(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
        text(size_.events++ == 0 ? "\n" : ",\n");
        fmt::format_to(std::back_inserter(buffer_), format, std::forward<Arguments>(arguments)...);
        flush_if_long();
    }
    void leave_out(std::int64_t count) { size_.left_out += count; }
    TraceSize finish();

private:
    void text(std::string_view words) { buffer_.append(words.data(), words.data() + words.size()); }
    void flush_if_long();
    void flush();

    OutputFile& file_;
    fmt::memory_buffer buffer_;
    TraceSize size_;
};

/// Nanoseconds as microseconds with three decimals, without a detour over floating point.
struct Microseconds {
    std::int64_t nanoseconds;
};

inline std::int64_t since_start(types::SimTime time) { return time.time_since_epoch().count(); }

/// A label as a JSON string; labels are plain words, but nothing is taken for granted.
std::string json_string(std::string_view text);

}  // namespace stowage::reports

template <>
struct fmt::formatter<stowage::reports::Microseconds> : fmt::formatter<std::string_view> {
    template <class Context>
    auto format(const stowage::reports::Microseconds& time, Context& context) const {
        return fmt::format_to(context.out(), "{}.{:03}", time.nanoseconds / 1000, time.nanoseconds % 1000);
    }
};
