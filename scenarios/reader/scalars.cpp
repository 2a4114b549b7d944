#include "scenarios/reader/scalars.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "scenarios/reader/layer_patterns.hpp"
#include "scenarios/reader/nearest.hpp"

namespace stowage::reader {
namespace {

struct Unit {
    std::string_view name;
    double bytes;
};
constexpr std::array<Unit, 10> kUnits{{{"B", 1},
                                       {"KiB", 0x1p10},
                                       {"MiB", 0x1p20},
                                       {"GiB", 0x1p30},
                                       {"TiB", 0x1p40},
                                       {"KB", 1e3},
                                       {"kB", 1e3},
                                       {"MB", 1e6},
                                       {"GB", 1e9},
                                       {"TB", 1e12}}};

constexpr IntegerRange kEveryLayers{1, 100'000};

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

std::string_view without_sign(std::string_view text) {
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
    return text;
}

/// Digits with an optional sign, no leading zero.
bool is_whole_number(std::string_view text) {
    const std::string_view digits = without_sign(text);
    if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) return false;
    for (char letter : digits)
        if (!is_digit(letter)) return false;
    return true;
}

std::optional<std::int64_t> to_integer(std::string_view text) {
    if (!text.empty() && text[0] == '+') text.remove_prefix(1);
    std::int64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

/// A finite decimal number, or nothing; `inf`, `nan` and hexadecimal forms are nothing too.
std::optional<double> to_number(std::string_view text) {
    if (!text.empty() && text[0] == '+') text.remove_prefix(1);
    const std::string_view digits = without_sign(text);
    if (digits.empty() || !(is_digit(digits[0]) || digits[0] == '.')) return std::nullopt;
    if (digits.size() > 1 && digits[0] == '0' && is_digit(digits[1])) return std::nullopt;
    double value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
    return value;
}

/// The shortest text that reads back as the number.
std::string shortest(double number) {
    std::array<char, 32> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, std::chars_format::fixed).ptr;
    return std::string(buffer.data(), end);
}

std::string decimal_hint(const Value& value, const char* form) {
    if (value.kind != Value::Kind::scalar) return {};
    if (value.quoted && to_number(value.text)) return "text in quotes is not a number; remove the quotes";
    for (char letter : value.text)
        if (is_digit(letter)) return form;
    return {};
}

ReadScalar read_integer(const Value& value, const IntegerRange& range) {
    if (value.kind != Value::Kind::scalar || value.quoted || !is_whole_number(value.text))
        return {{}, {}, decimal_hint(value, "write whole numbers in plain decimal digits, such as 4096")};
    const auto number = to_integer(value.text);
    if (!number || *number < range.least || *number > range.most) return {};
    return {ScalarValue{*number}, {}, {}};
}

ReadScalar read_number(const Value& value, const NumberRange& range) {
    std::optional<double> number;
    if (value.kind == Value::Kind::scalar && !value.quoted) number = to_number(value.text);
    if (!number) return {{}, {}, decimal_hint(value, "write numbers in plain decimals, such as 0.5 or 1.5e3")};
    if (*number < range.least || *number > range.most) return {};
    return {ScalarValue{*number}, {}, {}};
}

std::optional<double> unit_bytes(std::string_view name) {
    for (const Unit& unit : kUnits)
        if (unit.name == name) return unit.bytes;
    return std::nullopt;
}

/// `80 GiB`, `1.5TiB`, or a whole number of bytes. A fraction of a byte is dropped.
ReadScalar read_size(const Value& value, const SizeRange& range) {
    const std::string units = "units: B, KiB, MiB, GiB, TiB (powers of 1024), KB, MB, GB, TB (powers of 1000)";
    if (value.kind != Value::Kind::scalar) return {{}, {}, units};
    const std::string_view text = value.text;
    const std::size_t unit_at = std::min(text.find_first_not_of("+-.0123456789"), text.size());
    std::string_view digits = text.substr(0, unit_at);
    const std::size_t name_at = std::min(text.find_first_not_of(' ', unit_at), text.size());
    const std::string_view name = text.substr(name_at);
    const auto number = to_number(digits);
    if (name.empty() && number && !is_whole_number(digits)) return {{}, {}, "a number without a unit is whole bytes"};
    const auto bytes = name.empty() ? std::optional<double>(1) : unit_bytes(name);
    if (!number || !bytes) return {{}, {}, units};
    const double count = std::floor(*number * *bytes);
    if (count < static_cast<double>(range.least) || count > static_cast<double>(range.most)) return {};
    return {ScalarValue{types::Bytes{static_cast<std::int64_t>(count)}}, {}, {}};
}

ReadScalar read_flag(const Value& value) {
    if (value.kind != Value::Kind::scalar) return {};
    if (!value.quoted && (value.text == "true" || value.text == "false"))
        return {ScalarValue{value.text == "true"}, {}, {}};
    std::string lower;
    for (char letter : value.text.substr(0, 8))
        lower += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    if (lower == "yes" || lower == "on" || lower == "1" || lower == "true") return {{}, {}, "did you mean true?"};
    if (lower == "no" || lower == "off" || lower == "0" || lower == "false") return {{}, {}, "did you mean false?"};
    return {};
}

ReadScalar read_text(const Value& value) {
    if (value.kind != Value::Kind::scalar || value.text.empty()) return {};
    return {ScalarValue{value.text}, {}, {}};
}

ReadScalar read_choice(const Value& value, const ChoiceKind& kind) {
    // `none` is a plain word of enums; an empty value is never one.
    if (value.kind != Value::Kind::scalar) return {};
    for (std::size_t index = 0; index < kind.names.size(); ++index)
        if (kind.names[index] == value.text) return {ScalarValue{Choice{index}}, {}, {}};
    const std::string_view near = nearest(value.text, kind.names);
    return {{}, {}, near.empty() ? std::string() : "did you mean '" + std::string(near) + "'?"};
}

ReadScalar read_layer_pattern(const Value& value) {
    if (value.kind != Value::Kind::scalar) return {};
    if (value.text.find('[') == std::string::npos) return read_integer(value, kEveryLayers);
    auto layers = evaluate_layer_list(value.text);
    if (const auto* bad = std::get_if<BadPattern>(&layers)) return {{}, {}, "in the pattern: " + bad->reason};
    return {ScalarValue{std::get<std::vector<bool>>(std::move(layers))}, {}, {}};
}

bool is_plain_scalar(const Value& value, std::string_view word) {
    return value.kind == Value::Kind::scalar && !value.quoted && value.text == word;
}

bool is_absent(const Value& value, std::string_view word) {
    if (word.empty()) return false;
    if (word == "null") return value.kind == Value::Kind::null || is_plain_scalar(value, word);
    // JSON has no words without quotes, and no value with such a word is text.
    return value.kind == Value::Kind::scalar && value.text == word;
}

struct Reads {
    const Value& value;
    ReadScalar operator()(const IntegerRange& range) const { return read_integer(value, range); }
    ReadScalar operator()(const NumberRange& range) const { return read_number(value, range); }
    ReadScalar operator()(const SizeRange& range) const { return read_size(value, range); }
    ReadScalar operator()(const FlagKind& /*flag*/) const { return read_flag(value); }
    ReadScalar operator()(const TextKind& /*text*/) const { return read_text(value); }
    ReadScalar operator()(const ChoiceKind& kind) const { return read_choice(value, kind); }
    ReadScalar operator()(const LayerPatternKind& /*pattern*/) const { return read_layer_pattern(value); }
};

struct Expects {
    std::string operator()(const IntegerRange& range) const {
        if (range.least == -range.most) return "a whole number";
        return "a whole number from " + std::to_string(range.least) + " to " + std::to_string(range.most);
    }
    std::string operator()(const NumberRange& range) const {
        if (range.least == -range.most) return "a number";
        return "a number from " + shortest(range.least) + " to " + shortest(range.most);
    }
    std::string operator()(const SizeRange& range) const {
        return "a size such as 80 GiB, from " + std::to_string(range.least) + " B to " +
               std::to_string(range.most >> 40) + " TiB";
    }
    std::string operator()(const FlagKind& /*flag*/) const { return "true or false"; }
    std::string operator()(const TextKind& /*text*/) const { return "text"; }
    std::string operator()(const ChoiceKind& kind) const {
        std::string names = kind.names.size() > 1 ? "one of " : "";
        for (std::size_t i = 0; i < kind.names.size(); ++i) names += (i > 0 ? ", " : "") + std::string(kind.names[i]);
        return names;
    }
    std::string operator()(const LayerPatternKind& /*pattern*/) const {
        return (*this)(kEveryLayers) + ", or a pattern such as ([0]*3+[1]*58)";
    }
};

}  // namespace

std::string found(const Value& value) {
    switch (value.kind) {
        case Value::Kind::null: return "nothing";
        case Value::Kind::scalar: return in_quotes(value.text);
        case Value::Kind::sequence: return "a list";
        case Value::Kind::mapping: return "a mapping";
        case Value::Kind::invalid: break;
    }
    return "an unreadable value";
}

std::string expected(const ScalarKind& kind) {
    const std::string what = std::visit(Expects{}, kind.what);
    return kind.absent.empty() ? what : what + ", or " + std::string(kind.absent);
}

ReadScalar read_scalar(const Value& value, const ScalarKind& kind) {
    if (is_absent(value, kind.absent)) return {ScalarValue{}, {}, {}};
    ReadScalar read = std::visit(Reads{value}, kind.what);
    if (!read.value) read.message = "found " + found(value) + ", expected " + expected(kind);
    return read;
}

}  // namespace stowage::reader
