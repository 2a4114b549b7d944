#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/reader/document.hpp"
#include "scenarios/reader/megatron_arguments.hpp"
#include "scenarios/reader/read_fields.hpp"
#include "scenarios/reader/scalars.hpp"

namespace stowage::reader {

/// The arguments of one file, by name with underscores and without leading dashes. Whoever reads an argument names the
/// key of the scenario it decides, so that later errors in that key point at the argument. Problems go to `gathered`.
class Arguments {
public:
    /// Throws: types::InputError if the file cannot be read at all.
    Arguments(const std::filesystem::path& path, Gathered& gathered, ImportedScenario& imported);
    /// The same of a source that was loaded, in YAML or JSON.
    Arguments(SourcePointer source, Gathered& gathered, ImportedScenario& imported);
    /// The same of a mapping inside a source.
    Arguments(SourcePointer source, const Value& mapping, Gathered& gathered, ImportedScenario& imported);

    /// Whether the argument stands there with a value; null, and false for a flag, are as if it did not.
    [[nodiscard]] bool given(std::string_view name) const;
    /// Whether the argument stands there and, as a flag, is set.
    [[nodiscard]] bool set(std::string_view name) const;
    /// Whether the argument stands there with a value, false included.
    [[nodiscard]] bool has_value(std::string_view name) const;
    void serve(ImportFor purpose) { purpose_ = purpose; }
    /// Whether what no scenario can say is to be judged, not refused.
    [[nodiscard]] bool judging() const { return purpose_ == ImportFor::judging; }
    /// A single value as it stands there; empty if there is none.
    [[nodiscard]] std::string plain(std::string_view name) const;
    /// An error, or when judging a finding that Megatron rejects it.
    void reject(std::string_view name, std::string rule, std::string message, std::string hint);
    /// An error: no scenario can say it. When judging a note, and it is judged as if it were not there; when comparing
    /// it is listed.
    void cannot_say(std::string_view name, const std::string& what, std::string hint = {});
    /// Notes that a rule is kept, whatever the scenario shows.
    void keeps(std::string rule) { imported_.kept_rules.push_back(std::move(rule)); }
    /// Notes that argument `name` decides `key` too.
    void implies(std::string_view name, std::string_view key);
    /// The text of a member of a mapping; empty if there is none.
    [[nodiscard]] std::string member(std::string_view name, std::string_view key) const;
    /// A flag that is set.
    bool flag(std::string_view name, std::string_view key = {});
    /// Leaves `value` as it is if the argument is not given. Result: whether it was given and could be read.
    bool count(std::string_view name, std::string_view key, std::int64_t& value, IntegerRange range = {});
    bool count(std::string_view name, std::string_view key, std::optional<std::int64_t>& value,
               IntegerRange range = {});
    bool number(std::string_view name, std::string_view key, double& value, NumberRange range);
    bool number(std::string_view name, std::string_view key, std::optional<double>& value, NumberRange range);
    std::optional<std::string> text(std::string_view name, std::string_view key);
    template <class Enum>
    bool choice(std::string_view name, std::string_view key, Enum& value);
    /// The words of `[a b]`, `a b`, `a, b` or a YAML list; none if the argument is not given.
    std::optional<std::vector<std::string>> words(std::string_view name, std::string_view key);
    /// The same as members of an enumeration; an unknown word is an error with the nearest known one.
    template <class Enum>
    bool choices(std::string_view name, std::string_view key, std::vector<Enum>& values);
    /// A number n, or one 0 or 1 for each layer: a Python list expression such as `([0]*3+[1]*58)` or a YAML list.
    bool frequency(std::string_view name, std::string_view key, LayerFrequency& value);

    /// Notes that arguments whose names begin so have no effect here; says nothing if `why` is empty.
    void pass_over(std::string_view beginning, std::string_view why);
    void error(std::string_view name, std::string message, std::string hint = {});
    void file_error(std::string message, std::string hint = {});
    void note(std::string_view name, std::string_view message);
    void note(std::string_view message);
    void finding(std::string_view name, std::string rule, bool illegal, std::string message, std::string nearest_legal);

    /// Names of the arguments that are there, in the file's order.
    [[nodiscard]] std::vector<std::string> names() const;
    /// Whether anybody asked for the argument.
    [[nodiscard]] bool asked(std::string_view name) const;
    [[nodiscard]] const std::map<std::string, std::string>& environment() const { return environment_; }
    [[nodiscard]] std::string source_name() const { return source_->name(); }

private:
    void read();
    struct Argument {
        std::string spelling;
        Mark at;  ///< of the name
        Value value;
        bool asked = false;
    };
    void take(const Value& mapping);
    void take_environment(const Value& mapping);
    Argument* find(std::string_view name);
    [[nodiscard]] const Argument* find(std::string_view name) const;
    /// The argument if it has a value; notes that `key` comes from it.
    Argument* ask(std::string_view name, std::string_view key);
    std::optional<ScalarValue> scalar(std::string_view name, std::string_view key, const ScalarKind& kind);
    bool fail(std::string_view key, const Argument& argument, std::string message, std::string hint = {});
    [[nodiscard]] Location location(const Argument& argument) const;

    ImportFor purpose_ = ImportFor::planning;
    Gathered& gathered_;
    ImportedScenario& imported_;
    SourcePointer source_;
    std::vector<std::string> order_;
    std::map<std::string, Argument, std::less<>> arguments_;
    std::map<std::string, std::string> environment_;
};

template <class Enum>
bool Arguments::choice(std::string_view name, std::string_view key, Enum& value) {
    const auto read = scalar(name, key, ScalarKind{choice_kind<Enum>()});
    if (read) value = chosen<Enum>(*read);
    return read.has_value();
}

template <class Enum>
bool Arguments::choices(std::string_view name, std::string_view key, std::vector<Enum>& values) {
    const auto read = words(name, key);
    if (!read) return false;
    values.clear();
    for (const std::string& word : *read) {
        Value item;
        item.kind = Value::Kind::scalar;
        item.text = word;
        const ReadScalar scalar = read_scalar(item, ScalarKind{choice_kind<Enum>()});
        if (!scalar.value) return fail(key, *find(name), scalar.message, scalar.hint);
        values.push_back(chosen<Enum>(*scalar.value));
    }
    return true;
}

}  // namespace stowage::reader
