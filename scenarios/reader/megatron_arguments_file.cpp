#include "scenarios/reader/megatron_arguments_file.hpp"

#include <utility>

#include "scenarios/reader/layer_patterns.hpp"
#include "scenarios/reader/megatron_arguments_lists.hpp"

namespace stowage::reader {
namespace {

/// `--num-layers`, `num-layers` and `num_layers` are the same argument.
std::string plain_name(std::string_view spelling) {
    while (!spelling.empty() && spelling.front() == '-') spelling.remove_prefix(1);
    std::string name(spelling);
    for (char& letter : name)
        if (letter == '-') letter = '_';
    return name;
}

bool is_word(const Value& value, std::string_view word) {
    return value.kind == Value::Kind::scalar && !value.quoted && value.text == word;
}

/// YAML's null and Python's.
bool is_nothing(const Value& value) { return value.kind == Value::Kind::null || is_word(value, "None"); }

bool is_false(const Value& value) { return is_word(value, "false") || is_word(value, "False"); }

bool is_true(const Value& value) {
    return value.kind == Value::Kind::null || is_word(value, "true") || is_word(value, "True") ||
           (value.kind == Value::Kind::scalar && value.text.empty());
}

constexpr std::string_view kForm = "one argument a line, for example num-layers: 32";

}  // namespace

Arguments::Arguments(const std::filesystem::path& path, Gathered& gathered, ImportedScenario& imported)
    : gathered_(gathered), imported_(imported) {
    gathered.diagnostics.open(path.string());
    LoadedSource loaded = load_source(path);
    source_ = loaded.source ? loaded.source : std::make_shared<const SourceFile>(path.string(), "");
    if (!loaded.problem.empty())
        gathered.diagnostics.add(Location{source_, loaded.at, {}}, loaded.problem, loaded.hint);
    gathered.diagnostics.throw_if_any();
    read();
}

Arguments::Arguments(SourcePointer source, Gathered& gathered, ImportedScenario& imported)
    : gathered_(gathered), imported_(imported), source_(std::move(source)) {
    read();
}

Arguments::Arguments(SourcePointer source, const Value& mapping, Gathered& gathered, ImportedScenario& imported)
    : gathered_(gathered), imported_(imported), source_(std::move(source)) {
    gathered_.where.set("", Location{source_, mapping.at, {}});
    take(mapping);
}

void Arguments::read() {
    const Value root = parse_document(source_, gathered_.diagnostics);
    gathered_.diagnostics.throw_if_any();
    if (root.kind != Value::Kind::mapping)
        gathered_.diagnostics.add(Location{source_, root.at, {}},
                                  "found " + found(root) + ", expected a map of names and values", std::string(kForm));
    gathered_.diagnostics.throw_if_any();
    gathered_.where.set("", Location{source_, {}, {}});
    take(root);
}

void Arguments::take(const Value& mapping) {
    for (const Member& member : mapping.members) {
        if (member.key == "env" || member.key == "ENV_VARS") {
            take_environment(member.value);
            continue;
        }
        const bool nested = member.key == "args" || member.key == "MODEL_ARGS";
        if (nested && member.value.kind == Value::Kind::mapping) {
            take(member.value);
            continue;
        }
        const std::string name = plain_name(member.key);
        const Argument argument{member.key, member.at, member.value, false};
        if (member.value.kind == Value::Kind::invalid) continue;
        if (!arguments_.emplace(name, argument).second)
            gathered_.diagnostics.add(location(argument), "the argument stands here a second time",
                                      "--num-layers, num-layers and num_layers are one argument");
        else
            order_.push_back(name);
    }
}

void Arguments::take_environment(const Value& mapping) {
    if (mapping.kind != Value::Kind::mapping) {
        if (mapping.kind != Value::Kind::null)
            gathered_.diagnostics.add(Location{source_, mapping.at, "env"},
                                      "found " + found(mapping) + ", expected a map of environment variables");
        return;
    }
    for (const Member& member : mapping.members) {
        const std::string key = "env." + member.key;
        gathered_.where.set(key, Location{source_, member.value.at, key});
        if (member.value.kind == Value::Kind::scalar)
            environment_[member.key] = member.value.text;
        else if (member.value.kind != Value::Kind::null)
            gathered_.diagnostics.add(Location{source_, member.value.at, key},
                                      "found " + found(member.value) + ", expected text");
    }
}

Location Arguments::location(const Argument& argument) const {
    const Mark at = argument.value.at.line > 0 ? argument.value.at : argument.at;
    return Location{source_, at, argument.spelling};
}

const Arguments::Argument* Arguments::find(std::string_view name) const {
    const auto at = arguments_.find(name);
    return at == arguments_.end() ? nullptr : &at->second;
}

Arguments::Argument* Arguments::find(std::string_view name) {
    const auto at = arguments_.find(name);
    return at == arguments_.end() ? nullptr : &at->second;
}

bool Arguments::given(std::string_view name) const {
    const Argument* const argument = find(name);
    return argument != nullptr && !is_nothing(argument->value) && !is_false(argument->value);
}

bool Arguments::set(std::string_view name) const {
    const Argument* const argument = find(name);
    return argument != nullptr && !is_false(argument->value);
}

bool Arguments::has_value(std::string_view name) const {
    const Argument* const argument = find(name);
    return argument != nullptr && !is_nothing(argument->value);
}

void Arguments::implies(std::string_view name, std::string_view key) {
    if (const Argument* const argument = find(name)) gathered_.where.set(std::string(key), location(*argument));
}

std::string Arguments::plain(std::string_view name) const {
    const Argument* const argument = find(name);
    return argument == nullptr || argument->value.kind != Value::Kind::scalar ? std::string{} : argument->value.text;
}

void Arguments::cannot_say(std::string_view name, const std::string& what, std::string hint) {
    if (judging()) return note(name, what + ": judged without it");
    if (purpose_ == ImportFor::comparing) return imported_.missing.push_back(what);
    error(name, what + " cannot be planned", std::move(hint));
}

void Arguments::reject(std::string_view name, std::string rule, std::string message, std::string hint) {
    if (!judging()) return error(name, std::move(message), std::move(hint));
    if (hint.empty()) hint = "Leave it out.";
    finding(name, std::move(rule), true, std::move(message), std::move(hint));
}

std::string Arguments::member(std::string_view name, std::string_view key) const {
    const Argument* const argument = find(name);
    if (argument == nullptr) return {};
    for (const Member& member : argument->value.members)
        if (member.key == key) return member.value.text;
    return {};
}

void Arguments::pass_over(std::string_view beginning, std::string_view why) {
    for (const std::string& name : order_) {
        Argument& argument = *find(name);
        if (argument.asked || !name.starts_with(beginning)) continue;
        argument.asked = true;
        if (given(name) && !why.empty()) note(name, why);
    }
}

Arguments::Argument* Arguments::ask(std::string_view name, std::string_view key) {
    Argument* const argument = find(name);
    if (argument == nullptr) return nullptr;
    argument->asked = true;
    if (is_nothing(argument->value)) return nullptr;
    if (!key.empty()) gathered_.where.set(std::string(key), location(*argument));
    return argument;
}

bool Arguments::fail(std::string_view key, const Argument& argument, std::string message, std::string hint) {
    gathered_.diagnostics.add(location(argument), std::move(message), std::move(hint));
    if (!key.empty()) gathered_.failed.insert(std::string(key));
    return false;
}

bool Arguments::flag(std::string_view name, std::string_view key) {
    Argument* const argument = find(name);
    if (argument == nullptr) return false;
    argument->asked = true;
    if (!key.empty()) gathered_.where.set(std::string(key), location(*argument));
    if (is_true(argument->value)) return true;
    if (is_false(argument->value) || is_nothing(argument->value)) return false;
    return fail(key, *argument, "found " + found(argument->value) + ", expected a flag: true, false or nothing");
}

std::optional<ScalarValue> Arguments::scalar(std::string_view name, std::string_view key, const ScalarKind& kind) {
    const Argument* const argument = ask(name, key);
    if (argument == nullptr) return std::nullopt;
    Value value = argument->value;
    value.quoted = false;  // a command line has no other numbers than text
    const ReadScalar read = read_scalar(value, kind);
    if (!read.value) fail(key, *argument, read.message, read.hint);
    return read.value;
}

bool Arguments::count(std::string_view name, std::string_view key, std::int64_t& value, IntegerRange range) {
    const auto read = scalar(name, key, ScalarKind{range});
    if (read) value = std::get<std::int64_t>(*read);
    return read.has_value();
}

bool Arguments::count(std::string_view name, std::string_view key, std::optional<std::int64_t>& value,
                      IntegerRange range) {
    std::int64_t read = 0;
    if (!count(name, key, read, range)) return false;
    value = read;
    return true;
}

bool Arguments::number(std::string_view name, std::string_view key, double& value, NumberRange range) {
    const auto read = scalar(name, key, ScalarKind{range});
    if (read) value = std::get<double>(*read);
    return read.has_value();
}

bool Arguments::number(std::string_view name, std::string_view key, std::optional<double>& value, NumberRange range) {
    double read = 0;
    if (!number(name, key, read, range)) return false;
    value = read;
    return true;
}

std::optional<std::string> Arguments::text(std::string_view name, std::string_view key) {
    const auto read = scalar(name, key, ScalarKind{TextKind{}});
    if (!read) return std::nullopt;
    return std::get<std::string>(*read);
}

std::optional<std::vector<std::string>> Arguments::words(std::string_view name, std::string_view key) {
    const Argument* const argument = ask(name, key);
    if (argument == nullptr) return std::nullopt;
    const Value& value = argument->value;
    if (value.kind == Value::Kind::scalar) return list_words(value.text);
    std::vector<std::string> all;
    const std::string expected = ", expected words such as [a b], a b or a YAML list";
    if (value.kind != Value::Kind::sequence) {
        fail(key, *argument, "found " + found(value) + expected);
        return std::nullopt;
    }
    for (const Value& item : value.items) {
        if (item.kind != Value::Kind::scalar) {
            fail(key, *argument, "found " + found(item) + " in the list" + expected);
            return std::nullopt;
        }
        for (std::string& word : list_words(item.text)) all.push_back(std::move(word));
    }
    return all;
}

bool Arguments::frequency(std::string_view name, std::string_view key, LayerFrequency& value) {
    const Argument* const argument = ask(name, key);
    if (argument == nullptr) return false;
    std::string expression;
    if (argument->value.kind == Value::Kind::sequence) {
        for (const Value& item : argument->value.items) expression += (expression.empty() ? "" : ",") + item.text;
        expression = "[" + expression + "]";
    } else if (argument->value.text.find('[') != std::string::npos) {
        expression = argument->value.text;
    } else {
        std::int64_t every = 0;
        if (!count(name, key, every, IntegerRange{1, 100'000})) return false;
        value = LayerFrequency{every, {}};
        return true;
    }
    auto layers = evaluate_layer_list(expression);
    if (const auto* bad = std::get_if<BadPattern>(&layers))
        return fail(key, *argument, "found " + found(argument->value) + ": " + bad->reason,
                    "a number, or a list such as ([0]*3+[1]*5)");
    value = LayerFrequency{std::nullopt, std::get<std::vector<bool>>(std::move(layers))};
    return true;
}

void Arguments::error(std::string_view name, std::string message, std::string hint) {
    if (const Argument* const argument = find(name))
        gathered_.diagnostics.add(location(*argument), std::move(message), std::move(hint));
    else
        file_error(std::string(name) + ": " + message, std::move(hint));
}

void Arguments::file_error(std::string message, std::string hint) {
    gathered_.diagnostics.add(Location{source_, {}, {}}, std::move(message), std::move(hint));
}

void Arguments::note(std::string_view name, std::string_view message) {
    const Argument* const argument = find(name);
    if (argument == nullptr) return note(std::string(name) + ": " + std::string(message));
    imported_.notes.push_back(format_note(location(*argument), message));
}

void Arguments::note(std::string_view message) {
    imported_.notes.push_back(format_note(Location{source_, {}, {}}, message));
}

void Arguments::finding(std::string_view name, std::string rule, bool illegal, std::string message,
                        std::string nearest_legal) {
    const Argument* const argument = find(name);
    imported_.findings.push_back(
        ArgumentFinding{std::move(rule), illegal, std::move(message), std::move(nearest_legal),
                        argument == nullptr ? Location{source_, {}, {}} : location(*argument)});
}

std::vector<std::string> Arguments::names() const { return order_; }

bool Arguments::asked(std::string_view name) const {
    const Argument* const argument = find(name);
    return argument != nullptr && argument->asked;
}

}  // namespace stowage::reader
