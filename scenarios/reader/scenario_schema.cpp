#include "scenarios/reader/scenario_schema.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "scenarios/reader/drafts.hpp"

namespace stowage::reader {
namespace {

using nlohmann::json;

constexpr const char* kSizePattern = R"(^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)? *(B|[KMGT]iB|[kKMGT]B)$)";

constexpr const char* kLayerListPattern = R"(^[][()+*,0-9 ]*\[[][()+*,0-9 ]*$)";

struct Types {
    json operator()(const IntegerRange& range) const {
        return {{"type", "integer"}, {"minimum", range.least}, {"maximum", range.most}};
    }
    json operator()(const NumberRange& range) const {
        return {{"type", "number"}, {"minimum", range.least}, {"maximum", range.most}};
    }
    json operator()(const SizeRange& range) const {
        return {{"anyOf", json::array({json{{"type", "integer"}, {"minimum", range.least}, {"maximum", range.most}},
                                       json{{"type", "string"}, {"pattern", kSizePattern}}})}};
    }
    json operator()(const FlagKind& /*flag*/) const { return {{"type", "boolean"}}; }
    json operator()(const TextKind& /*text*/) const { return {{"type", json::array({"string", "number", "boolean"})}}; }
    json operator()(const ChoiceKind& kind) const { return {{"enum", kind.names}}; }
    json operator()(const LayerPatternKind& /*pattern*/) const {
        return {{"anyOf", json::array({json{{"type", "integer"}, {"minimum", 1}, {"maximum", 100'000}},
                                       json{{"type", "string"}, {"pattern", kLayerListPattern}}})}};
    }
};

struct Defaults {
    const ScalarKind& kind;
    json operator()(std::monostate /*absent*/) const { return kind.absent == "null" ? json() : json(kind.absent); }
    json operator()(std::int64_t value) const { return value; }
    json operator()(double value) const { return value; }
    json operator()(types::Bytes value) const { return value.count; }
    json operator()(bool value) const { return value; }
    json operator()(const std::string& value) const { return value; }
    json operator()(const std::vector<bool>& layers) const { return layers; }
    json operator()(Choice choice) const { return std::get<ChoiceKind>(kind.what).names[choice.index]; }
};

json schema_of(const ScalarKind& kind) {
    json type = std::visit(Types{}, kind.what);
    if (kind.absent.empty()) return type;
    json absent = kind.absent == "null" ? json{{"type", "null"}} : json{{"const", kind.absent}};
    return {{"anyOf", json::array({std::move(type), std::move(absent)})}};
}

/// A value that stands for "derived from others" lies outside its own range and is no default to show.
bool is_default(const ScalarKind& kind, const ScalarValue& value) {
    if (const auto* range = std::get_if<IntegerRange>(&kind.what))
        if (const auto* number = std::get_if<std::int64_t>(&value))
            return *number >= range->least && *number <= range->most;
    if (const auto* range = std::get_if<NumberRange>(&kind.what))
        if (const auto* number = std::get_if<double>(&value)) return *number >= range->least && *number <= range->most;
    if (std::holds_alternative<std::monostate>(value)) return !kind.absent.empty();
    if (const auto* text = std::get_if<std::string>(&value)) return !text->empty();
    return true;
}

/// Takes note of every key asked for.
class WriteSchema : public Fields {
public:
    void schema(const FileKind& kind) override {
        put(Key{"schema", "kind and version of this file", true},
            json{{"const", "stowage/" + std::string(kind.name) + "/1"}});
    }
    void scalar(const Key& key, const ScalarKind& kind, const ScalarValue& current, const SetScalar& /*set*/) override {
        json value = schema_of(kind);
        if (!key.required && is_default(kind, current)) value["default"] = std::visit(Defaults{kind}, current);
        put(key, std::move(value));
    }
    void list(const Key& key, const ScalarKind& item, const SetList& /*set*/, const std::optional<ScalarKind>& instead,
              const SetScalar& /*set_instead*/) override {
        json value{{"type", "array"}, {"items", schema_of(item)}};
        if (instead) value = json{{"anyOf", json::array({std::move(value), schema_of(*instead)})}};
        put(key, std::move(value));
    }
    void group(const Key& key, const Describe& describe) override {
        WriteSchema inside;
        describe(inside);
        put(key, inside.object());
    }
    void groups(const Key& key, const Describe& describe_item, const std::function<void()>& /*done*/) override {
        WriteSchema inside;
        describe_item(inside);
        put(key, json{{"type", "array"}, {"items", inside.object()}});
    }
    std::string reference(const Key& key, const FileKind& kind, const Describe& describe) override {
        WriteSchema inside;
        describe(inside);
        const json path{{"type", "string"}, {"description", "path of a " + std::string(kind.name) + " file"}};
        put(key, json{{"anyOf", json::array({path, inside.inline_object(), inside.override_object(path)})}});
        return {};
    }
    void text_map(const Key& key, std::map<std::string, std::string>& /*values*/) override {
        put(key, json{{"type", "object"}, {"additionalProperties", std::visit(Types{}, ScalarKind{TextKind{}}.what)}});
    }
    void remark(std::string_view name) override {
        put(Key{name, "for people: where the figures come from"}, json::object());
    }
    void refused(std::string_view /*name*/, std::string_view /*hint*/) override {}
    void problem(std::string_view /*name*/, const std::string& /*message*/) override {}

    [[nodiscard]] json object() const {
        json result{{"type", "object"}, {"properties", properties_}, {"additionalProperties", false}};
        if (!required_.empty()) result["required"] = required_;
        return result;
    }
    /// Written inside another file, a mapping need not say its schema.
    [[nodiscard]] json inline_object() const {
        json result = object();
        result["required"].erase(result["required"].begin());
        return result;
    }
    [[nodiscard]] json override_object(const json& path) const {
        json result = without_required(object());
        result["properties"]["from"] = path;
        result["required"] = json::array({"from"});
        return result;
    }

private:
    /// Overriding, no key is required at any depth; items of lists are always whole.
    static json without_required(json schema) {
        schema.erase("required");
        if (schema.contains("properties"))
            for (auto& [name, value] : schema["properties"].items())
                if (value.value("type", json()) == "object") value = without_required(value);
        return schema;
    }

    void put(const Key& key, json value) {
        value["description"] = key.about;
        properties_[std::string(key.name)] = std::move(value);
        if (key.required) required_.push_back(key.name);
    }

    json properties_ = json::object();
    json required_ = json::array();
};

json finished(const WriteSchema& written, const std::string& kind) {
    json schema = written.object();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
    schema["title"] = "stowage/" + kind + "/1";
    return schema;
}

}  // namespace

json scenario_schema() {
    ScenarioDraft draft;
    WriteSchema written;
    describe_scenario(written, draft);
    return finished(written, "scenario");
}

json model_schema() {
    ModelDraft draft;
    WriteSchema written;
    describe_model(written, draft);
    return finished(written, "model");
}

json hardware_schema() {
    types::Node node;
    WriteSchema written;
    describe_hardware(written, node);
    return finished(written, "hardware");
}

}  // namespace stowage::reader
