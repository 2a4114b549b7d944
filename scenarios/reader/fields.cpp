#include "scenarios/reader/fields.hpp"

#include <cmath>

namespace stowage::reader {
namespace {

constexpr double kNanosecondsInMicrosecond = 1e3;
constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;

template <class Value>
ScalarValue current_of(const std::optional<Value>& value) {
    return value ? ScalarValue{*value} : ScalarValue{};
}

template <class Value>
Fields::SetScalar into(std::optional<Value>& value) {
    return [&value](const ScalarValue& read) {
        if (std::holds_alternative<std::monostate>(read))
            value.reset();
        else
            value = std::get<Value>(read);
    };
}

template <class Value>
Fields::SetScalar into(Value& value) {
    return [&value](const ScalarValue& read) { value = std::get<Value>(read); };
}

}  // namespace

void Fields::count(const Key& key, std::int64_t& value, IntegerRange range) {
    scalar(key, ScalarKind{range}, value, into(value));
}

void Fields::optional_count(const Key& key, std::optional<std::int64_t>& value, IntegerRange range,
                            std::string_view absent) {
    scalar(key, ScalarKind{range, absent}, current_of(value), into(value));
}

void Fields::count_or_none(const Key& key, std::int64_t& value, IntegerRange range) {
    scalar(key, ScalarKind{range, "null"}, value, [&](const ScalarValue& read) {
        const auto* number = std::get_if<std::int64_t>(&read);
        value = number != nullptr ? *number : 0;
    });
}

void Fields::optional_number(const Key& key, std::optional<double>& value, NumberRange range, std::string_view absent) {
    scalar(key, ScalarKind{range, absent}, current_of(value), into(value));
}

void Fields::frequency(const Key& key, LayerFrequency& value) {
    const auto set_list = [&](const std::vector<ScalarValue>& items) {
        value = {};
        for (const ScalarValue& item : items) value.layers.push_back(std::get<std::int64_t>(item) != 0);
    };
    const auto set_pattern = [&](const ScalarValue& read) {
        value = {};
        if (const auto* every = std::get_if<std::int64_t>(&read)) value.every = *every;
        if (const auto* layers = std::get_if<std::vector<bool>>(&read)) value.layers = *layers;
    };
    list(key, ScalarKind{IntegerRange{0, 1}}, set_list, ScalarKind{LayerPatternKind{}, "null"}, set_pattern);
}

void Fields::number(const Key& key, double& value, NumberRange range) {
    scalar(key, ScalarKind{range}, value, into(value));
}

void Fields::flag(const Key& key, bool& value) { scalar(key, ScalarKind{FlagKind{}}, value, into(value)); }

void Fields::optional_flag(const Key& key, std::optional<bool>& value, std::string_view absent) {
    scalar(key, ScalarKind{FlagKind{}, absent}, current_of(value), into(value));
}

void Fields::text(const Key& key, std::string& value) { scalar(key, ScalarKind{TextKind{}}, value, into(value)); }

void Fields::size(const Key& key, types::Bytes& value) { scalar(key, ScalarKind{SizeRange{}}, value, into(value)); }

void Fields::optional_size(const Key& key, std::optional<types::Bytes>& value) {
    scalar(key, ScalarKind{SizeRange{}, "null"}, current_of(value), into(value));
}

void Fields::microseconds(const Key& key, types::Nanoseconds& value, NumberRange range) {
    scalar(key, ScalarKind{range}, types::in_microseconds(value), [&](const ScalarValue& read) {
        value = types::Nanoseconds{std::llround(std::get<double>(read) * kNanosecondsInMicrosecond)};
    });
}

void Fields::gb_per_s(const Key& key, types::BytesPerSecond& value) {
    scalar(key, ScalarKind{NumberRange{1e-3, 1e6}}, value.rate / kGiga,
           [&](const ScalarValue& read) { value.rate = std::get<double>(read) * kGiga; });
}

void Fields::tflop_per_s(const Key& key, types::FlopsPerSecond& value) {
    scalar(key, ScalarKind{NumberRange{1e-3, 1e6}}, value.rate / kTera,
           [&](const ScalarValue& read) { value.rate = std::get<double>(read) * kTera; });
}

}  // namespace stowage::reader
