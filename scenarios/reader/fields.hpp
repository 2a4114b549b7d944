#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "scenarios/types/bytes.hpp"
#include "scenarios/types/enum_names.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::reader {

/// A key of a mapping: its name, what it means in one line, and whether it must be there.
struct Key {
    std::string_view name;
    std::string_view about;
    bool required = false;
};

/// What a scalar may be. Ranges are inclusive.
struct IntegerRange {
    std::int64_t least = 1;
    std::int64_t most = 1'000'000'000;
};
struct NumberRange {
    double least = 0;
    double most = 1e9;
};
struct SizeRange {
    std::int64_t least = 1;
    std::int64_t most = std::int64_t{1} << 50;  ///< a pebibyte
};
struct FlagKind {};
struct TextKind {};
struct ChoiceKind {
    std::vector<std::string_view> names;
};
/// A number n (every n-th layer), or Megatron's expression of a list with one 0 or 1 for each layer: ([0]*3+[1]*58).
struct LayerPatternKind {};
/// A kind, or the word `absent` (such as auto or null) in its place; empty: no such word.
struct ScalarKind {
    std::variant<IntegerRange, NumberRange, SizeRange, FlagKind, TextKind, ChoiceKind, LayerPatternKind> what;
    std::string_view absent = {};
};

struct Choice {
    std::size_t index = 0;
};
/// A scalar that was read; monostate stands for the word `absent`.
using ScalarValue =
    std::variant<std::monostate, std::int64_t, double, types::Bytes, bool, std::string, Choice, std::vector<bool>>;

/// Which layers have something: every so many of them, or one answer for each; neither: not said.
struct LayerFrequency {
    std::optional<std::int64_t> every;
    std::vector<bool> layers;
};

/// A kind of file: `stowage/<name>/1` is what its key `schema` must say.
struct FileKind {
    std::string_view name;
};

/// Asks for the keys of one mapping. A format is described once, as a function that asks a Fields for every key it
/// knows; the reader answers from a file, the schema writer takes note of the questions. So they cannot disagree.
/// A describing function may be called twice on one object (a file, then the keys that override it) and so never
/// resets what it was not given.
class Fields {
public:
    using SetScalar = std::function<void(const ScalarValue&)>;
    using SetList = std::function<void(const std::vector<ScalarValue>&)>;
    using Describe = std::function<void(Fields&)>;

    virtual ~Fields() = default;

    /// The `schema` key of a file.
    virtual void schema(const FileKind& kind) = 0;
    /// One value; `current` is its default.
    virtual void scalar(const Key& key, const ScalarKind& kind, const ScalarValue& current, const SetScalar& set) = 0;
    /// A list of values, or, if given, one value of kind `instead`.
    virtual void list(const Key& key, const ScalarKind& item, const SetList& set,
                      const std::optional<ScalarKind>& instead, const SetScalar& set_instead) = 0;
    /// A mapping inside this one.
    virtual void group(const Key& key, const Describe& describe) = 0;
    /// A list of mappings; `done` runs once all of them were read without an error.
    virtual void groups(const Key& key, const Describe& describe_item, const std::function<void()>& done) = 0;
    /// A file's path, or a mapping inline, or a mapping that overrides keys of the file that its key `from` names.
    /// Result: the file's name without folder and ending; empty if inline.
    virtual std::string reference(const Key& key, const FileKind& kind, const Describe& describe) = 0;
    virtual void text_map(const Key& key, std::map<std::string, std::string>& values) = 0;
    /// Anything, kept for people: where figures come from.
    virtual void remark(std::string_view name) = 0;
    /// A key of the language that this version cannot plan yet; it is refused by name.
    virtual void refused(std::string_view name, std::string_view hint) = 0;
    /// An error in the value of `name` that only the describing function can see.
    virtual void problem(std::string_view name, const std::string& message) = 0;

    void count(const Key& key, std::int64_t& value, IntegerRange range = {});
    void optional_count(const Key& key, std::optional<std::int64_t>& value, IntegerRange range,
                        std::string_view absent);
    /// null stands for 0.
    void count_or_none(const Key& key, std::int64_t& value, IntegerRange range);
    void number(const Key& key, double& value, NumberRange range);
    void optional_number(const Key& key, std::optional<double>& value, NumberRange range, std::string_view absent);
    void frequency(const Key& key, LayerFrequency& value);
    void flag(const Key& key, bool& value);
    void optional_flag(const Key& key, std::optional<bool>& value, std::string_view absent);
    void text(const Key& key, std::string& value);
    void size(const Key& key, types::Bytes& value);
    void optional_size(const Key& key, std::optional<types::Bytes>& value);
    void microseconds(const Key& key, types::Nanoseconds& value, NumberRange range);
    void gb_per_s(const Key& key, types::BytesPerSecond& value);
    void tflop_per_s(const Key& key, types::FlopsPerSecond& value);
    template <class Enum>
    void choice(const Key& key, Enum& value);
    /// One of these only.
    template <class Enum>
    void choice_among(const Key& key, Enum& value, const std::vector<Enum>& allowed);
    template <class Enum>
    void optional_choice(const Key& key, std::optional<Enum>& value);
    template <class Enum>
    void choices(const Key& key, std::vector<Enum>& values);
};

template <class Enum>
ChoiceKind choice_kind() {
    ChoiceKind kind;
    for (const auto& [value, name] : types::enum_names<Enum>()) kind.names.push_back(name);
    return kind;
}

template <class Enum>
Enum chosen(const ScalarValue& read) {
    return types::enum_names<Enum>()[std::get<Choice>(read).index].first;
}

template <class Enum>
void Fields::choice(const Key& key, Enum& value) {
    std::size_t index = 0;
    while (types::enum_names<Enum>()[index].first != value) ++index;
    scalar(key, ScalarKind{choice_kind<Enum>()}, Choice{index},
           [&](const ScalarValue& read) { value = chosen<Enum>(read); });
}

template <class Enum>
void Fields::choice_among(const Key& key, Enum& value, const std::vector<Enum>& allowed) {
    ChoiceKind kind;
    std::size_t index = 0;
    for (std::size_t i = 0; i < allowed.size(); ++i) {
        kind.names.push_back(types::name_of(allowed[i]));
        if (allowed[i] == value) index = i;
    }
    scalar(key, ScalarKind{std::move(kind)}, Choice{index},
           [&](const ScalarValue& read) { value = allowed[std::get<Choice>(read).index]; });
}

template <class Enum>
void Fields::optional_choice(const Key& key, std::optional<Enum>& value) {
    scalar(key, ScalarKind{choice_kind<Enum>()}, ScalarValue{},
           [&](const ScalarValue& read) { value = chosen<Enum>(read); });
}

template <class Enum>
void Fields::choices(const Key& key, std::vector<Enum>& values) {
    const auto set = [&](const std::vector<ScalarValue>& read) {
        values.clear();
        for (const ScalarValue& item : read) values.push_back(chosen<Enum>(item));
    };
    list(key, ScalarKind{choice_kind<Enum>()}, set, std::nullopt, {});
}

}  // namespace stowage::reader
