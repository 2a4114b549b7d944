#include "profiler/cupti/raw_events.hpp"

#include <algorithm>
#include <charconv>

namespace stowage::profiler {
namespace {

constexpr std::string_view kPrefix = "stowage:";

void add(std::string& text, std::string_view key, const std::string& value) {
    if (value.empty()) return;
    if (text.size() > kPrefix.size()) text += ';';
    text += key;
    text += '=';
    text += value;
}

void add(std::string& text, std::string_view key, std::int32_t value) {
    if (value >= 0) add(text, key, std::to_string(value));
}

void read_number(std::string_view value, std::int32_t& into) {
    std::int32_t number = -1;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc{} && end == value.data() + value.size()) into = number;
}

void read_field(std::string_view key, std::string_view value, Mark& mark) {
    if (key == "module") mark.module = value;
    if (key == "phase") mark.phase = value;
    if (key == "work") mark.work = value;
    if (key == "layer") read_number(value, mark.layer);
    if (key == "microbatch") read_number(value, mark.microbatch);
    if (key == "chunk") read_number(value, mark.chunk);
}

}  // namespace

std::string text_of(const Mark& mark) {
    std::string text{kPrefix};
    add(text, "module", mark.module);
    add(text, "phase", mark.phase);
    add(text, "work", mark.work);
    add(text, "layer", mark.layer);
    add(text, "microbatch", mark.microbatch);
    add(text, "chunk", mark.chunk);
    return text;
}

std::optional<Mark> mark_of(std::string_view text) {
    if (text.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
    text.remove_prefix(kPrefix.size());
    Mark mark;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(';'), text.size());
        const std::string_view field = text.substr(0, end);
        const std::size_t equals = field.find('=');
        if (equals != std::string_view::npos) read_field(field.substr(0, equals), field.substr(equals + 1), mark);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return mark;
}

}  // namespace stowage::profiler
