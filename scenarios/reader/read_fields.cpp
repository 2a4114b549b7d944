#include "scenarios/reader/read_fields.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "scenarios/reader/key_catalogue.hpp"
#include "scenarios/reader/nearest.hpp"
#include "scenarios/reader/scalars.hpp"

namespace stowage::reader {
namespace {

std::string joined(const std::string& path, std::string_view name) {
    return path.empty() ? std::string(name) : path + "." + std::string(name);
}

const Member* find_member(const Value& mapping, std::string_view name) {
    for (const Member& member : mapping.members)
        if (member.key == name) return &member;
    return nullptr;
}

/// The path of a reference, relative to the folder of the file that holds it.
std::string beside(const SourceFile& source, const std::string& path) {
    const std::filesystem::path target(path);
    if (target.is_absolute()) return path;
    return (std::filesystem::path(source.name()).parent_path() / target).string();
}

/// The file in the same folder whose name is nearest, as a hint.
std::string nearest_file(const std::string& path) {
    constexpr std::size_t kMostFiles = 500;
    std::vector<std::string> names;
    std::error_code code;
    const std::filesystem::path target(path);
    const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
    for (std::filesystem::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code))
        if (names.size() < kMostFiles) names.push_back(entry->path().filename().string());
    std::sort(names.begin(), names.end());
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string_view near = nearest(target.filename().string(), views);
    return near.empty() || near == target.filename() ? std::string()
                                                     : "did you mean '" + (target.parent_path() / near).string() + "'?";
}

std::string schema_text(const FileKind& kind) { return "stowage/" + std::string(kind.name) + "/1"; }

/// Whether the root says it is another kind of file, in which case nothing else in it is worth reporting.
bool another_kind(Gathered& gathered, const SourcePointer& source, const Value& root, const FileKind& kind) {
    const Member* schema = find_member(root, "schema");
    if (!schema || schema->value.kind == Value::Kind::invalid) return false;
    if (schema->value.kind == Value::Kind::scalar && schema->value.text == schema_text(kind)) return false;
    gathered.diagnostics.add(Location{source, schema->value.at, "schema"},
                             "found " + found(schema->value) + ", expected " + schema_text(kind));
    return true;
}

}  // namespace

ReadFields::ReadFields(Gathered& gathered, SourcePointer source, const Value& mapping, std::string local,
                       std::string global, bool overriding)
    : gathered_(gathered),
      source_(std::move(source)),
      mapping_(mapping),
      local_(std::move(local)),
      global_(std::move(global)),
      overriding_(overriding) {}

std::string ReadFields::local(std::string_view name) const { return joined(local_, name); }
std::string ReadFields::global(std::string_view name) const { return joined(global_, name); }

void ReadFields::fail(std::string_view name, Mark at, std::string message, std::string hint) {
    gathered_.failed.insert(global(name));
    gathered_.diagnostics.add(Location{source_, at, local(name)}, std::move(message), std::move(hint));
}

void ReadFields::wrong(std::string_view name, const Value& value, const std::string& wanted, std::string hint) {
    fail(name, value.at, "found " + found(value) + ", expected " + wanted, std::move(hint));
}

const Member* ReadFields::ask(std::string_view name) {
    asked_.push_back(name);
    const Member* member = find_member(mapping_, name);
    if (!member) return nullptr;
    const std::string path = global(name);
    const bool group = member->value.kind == Value::Kind::mapping;
    gathered_.where.set(path, Location{source_, group ? member->at : member->value.at, local(name)});
    if (member->value.kind == Value::Kind::invalid) gathered_.failed.insert(path);
    return member;
}

/// The value of a key, or null if it is missing (an error if it is required) or was reported already.
const Value* ReadFields::ask_value(const Key& key) {
    offered_.push_back(key.name);
    const Member* member = ask(key.name);
    if (member) return member->value.kind == Value::Kind::invalid ? nullptr : &member->value;
    if (key.required && !overriding_) {
        gathered_.failed.insert(global(key.name));
        gathered_.diagnostics.add(Location{source_, mapping_.at, local_},
                                  "missing key " + in_quotes(key.name) + " (" + std::string(key.about) + ")");
    }
    return nullptr;
}

void ReadFields::schema(const FileKind& kind) {
    const std::string about = "expected " + schema_text(kind);
    const Value* value = ask_value(Key{"schema", about, local_.empty()});
    if (value && !(value->kind == Value::Kind::scalar && value->text == schema_text(kind)))
        wrong("schema", *value, schema_text(kind));
}

void ReadFields::scalar(const Key& key, const ScalarKind& kind, const ScalarValue& /*current*/, const SetScalar& set) {
    const Value* value = ask_value(key);
    if (!value) return;
    ReadScalar read = read_scalar(*value, kind);
    if (read.value) return set(*read.value);
    fail(key.name, value->at, std::move(read.message), std::move(read.hint));
}

void ReadFields::list(const Key& key, const ScalarKind& item, const SetList& set,
                      const std::optional<ScalarKind>& instead, const SetScalar& set_instead) {
    const Value* value = ask_value(key);
    if (!value) return;
    if (value->kind != Value::Kind::sequence) {
        const ReadScalar read = instead ? read_scalar(*value, *instead) : ReadScalar{};
        if (read.value) return set_instead(*read.value);
        const std::string other = instead ? ", or " + expected(*instead) : "";
        const bool one_item = read_scalar(*value, item).value.has_value();
        return wrong(key.name, *value, "a list, each item " + expected(item) + other,
                     one_item ? "write [" + value->text + "]" : read.hint);
    }
    std::vector<ScalarValue> values;
    for (std::size_t i = 0; i < value->items.size(); ++i) {
        if (value->items[i].kind == Value::Kind::invalid) continue;
        ReadScalar read = read_scalar(value->items[i], item);
        const std::string name = std::string(key.name) + "[" + std::to_string(i) + "]";
        if (read.value)
            values.push_back(std::move(*read.value));
        else
            fail(name, value->items[i].at, std::move(read.message), std::move(read.hint));
    }
    if (values.size() == value->items.size()) return set(values);
    gathered_.failed.insert(global(key.name));
}

void ReadFields::describe_inside(std::string_view name, const Value& mapping, bool overriding,
                                 const Describe& describe) {
    ReadFields inside(gathered_, source_, mapping, local(name), global(name), overriding);
    describe(inside);
    inside.finish();
}

void ReadFields::group(const Key& key, const Describe& describe) {
    const Value* value = ask_value(key);
    if (!value) return;
    if (value->kind != Value::Kind::mapping) return wrong(key.name, *value, "a mapping");
    describe_inside(key.name, *value, overriding_, describe);
}

void ReadFields::groups(const Key& key, const Describe& describe_item, const std::function<void()>& done) {
    const Value* value = ask_value(key);
    if (!value) return;
    if (value->kind != Value::Kind::sequence) return wrong(key.name, *value, "a list of mappings");
    const std::size_t failures = gathered_.failed.size();
    for (std::size_t i = 0; i < value->items.size(); ++i) {
        const Value& item = value->items[i];
        const std::string name = std::string(key.name) + "[" + std::to_string(i) + "]";
        if (item.kind == Value::Kind::mapping)
            describe_inside(name, item, false, describe_item);
        else if (item.kind == Value::Kind::invalid)
            gathered_.failed.insert(global(name));
        else
            wrong(name, item, "a mapping");
    }
    if (gathered_.failed.size() == failures) return done();
    gathered_.failed.insert(global(key.name));
}

std::string ReadFields::read_referenced(const Key& key, const Value& path, const FileKind& kind,
                                        const Describe& describe) {
    if (path.kind != Value::Kind::scalar || path.text.empty() || path.text.find('\0') != std::string::npos) {
        wrong(key.name, path, "the path of a " + std::string(kind.name) + " file");
        return {};
    }
    const Location here{source_, path.at, local(key.name)};
    const std::string target = beside(*source_, path.text);
    read_file(gathered_, target, kind, global(key.name), &here, describe);
    return std::filesystem::path(path.text).stem().string();
}

std::string ReadFields::reference(const Key& key, const FileKind& kind, const Describe& describe) {
    const Value* value = ask_value(key);
    if (!value) return {};
    if (value->kind == Value::Kind::scalar) return read_referenced(key, *value, kind, describe);
    if (value->kind != Value::Kind::mapping) {
        wrong(key.name, *value, "the path of a " + std::string(kind.name) + " file, or a mapping");
        return {};
    }
    const Member* from = find_member(*value, "from");
    std::string stem;
    if (from && from->value.kind != Value::Kind::invalid) stem = read_referenced(key, from->value, kind, describe);
    const auto with_from = [&](Fields& fields) {
        fields.remark("from");
        describe(fields);
    };
    describe_inside(key.name, *value, overriding_ || from != nullptr, with_from);
    return stem;
}

void ReadFields::text_map(const Key& key, std::map<std::string, std::string>& values) {
    const Value* value = ask_value(key);
    if (!value) return;
    if (value->kind != Value::Kind::mapping) return wrong(key.name, *value, "a mapping of names to values");
    for (const Member& member : value->members) {
        if (member.value.kind == Value::Kind::scalar)
            values[member.key] = member.value.text;
        else if (member.value.kind != Value::Kind::invalid)
            wrong(joined(std::string(key.name), member.key), member.value, "text or a number");
    }
}

void ReadFields::remark(std::string_view name) { asked_.push_back(name); }

void ReadFields::refused(std::string_view name, std::string_view hint) {
    const Member* member = ask(name);
    if (member) fail(name, member->at, "known, but this version cannot plan it yet", std::string(hint));
}

void ReadFields::problem(std::string_view name, const std::string& message) {
    const Member* member = find_member(mapping_, name);
    fail(name, member ? member->value.at : mapping_.at, message);
}

void ReadFields::finish() {
    for (const Member& member : mapping_.members) {
        if (std::find(asked_.begin(), asked_.end(), member.key) != asked_.end()) continue;
        std::string hint;
        if (const std::string home = home_of_key(member.key); !home.empty())
            hint = in_quotes(member.key) + " stands in " + home;
        else if (const std::string_view near = nearest(member.key, offered_); !near.empty()) {
            hint = "did you mean " + in_quotes(near) + "?";
            gathered_.failed.insert(global(near));  // so that its absence has no consequences of its own
        }
        gathered_.diagnostics.add(Location{source_, member.at, local_}, "unknown key " + in_quotes(member.key), hint);
    }
}

void read_file(Gathered& gathered, const std::string& path, const FileKind& kind, const std::string& global,
               const Location* from_here, const Fields::Describe& describe) {
    const auto whole_file_fails = [&](Location at, const std::string& message, const std::string& hint) {
        gathered.failed.insert(global);
        gathered.diagnostics.add(std::move(at), message, hint);
    };
    gathered.diagnostics.open(path);
    LoadedSource loaded = load_source(path);
    if (!loaded.source) {
        if (from_here) return whole_file_fails(*from_here, in_quotes(path) + " " + loaded.problem, nearest_file(path));
        const auto nameless = std::make_shared<const SourceFile>(path, "");
        return whole_file_fails(Location{nameless, {}, {}}, loaded.problem, nearest_file(path));
    }
    if (!loaded.problem.empty())
        return whole_file_fails(Location{loaded.source, loaded.at, {}}, loaded.problem, loaded.hint);
    const Value root = parse_document(loaded.source, gathered.diagnostics);
    if (global.empty()) gathered.where.set("", Location{loaded.source, root.at, {}});
    if (root.kind == Value::Kind::invalid) {
        gathered.failed.insert(global);
        return;
    }
    if (root.kind != Value::Kind::mapping) {
        const bool empty = root.kind == Value::Kind::null;
        return whole_file_fails(
            Location{loaded.source, empty ? Mark{} : root.at, {}},
            empty ? "the file is empty, expected a mapping that begins with schema: " + schema_text(kind)
                  : "found " + found(root) + ", expected a mapping that begins with schema: " + schema_text(kind),
            {});
    }
    if (another_kind(gathered, loaded.source, root, kind)) {
        gathered.failed.insert(global);
        return;
    }
    ReadFields fields(gathered, loaded.source, root, "", global, false);
    describe(fields);
    fields.finish();
}

}  // namespace stowage::reader
