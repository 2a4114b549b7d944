#include "scenarios/reader/validation_file.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "scenarios/reader/checks.hpp"
#include "scenarios/reader/drafts.hpp"
#include "scenarios/reader/read_fields.hpp"

namespace stowage::reader {
namespace {

constexpr FileKind kValidationFile{"validation"};
constexpr std::size_t kMostCases = 10'000;
constexpr IntegerRange kSteps{1, 100'000};
constexpr IntegerRange kGroups{1, 1'000'000};
constexpr NumberRange kSeconds{0, 3600};
constexpr NumberRange kSkew{1, 1000};

/// A slice or a variant: a mapping of the file.
struct Part {
    std::string name;
    std::string path;  ///< slices[2]
    const Value* value = nullptr;
    std::vector<std::string> variants;  ///< of a slice: only these; empty: all
};

const Value* member(const Value& mapping, std::string_view key) {
    const auto at =
        std::find_if(mapping.members.begin(), mapping.members.end(), [&](const Member& one) { return one.key == key; });
    return at == mapping.members.end() ? nullptr : &at->value;
}

void describe_word(Fields& fields, const Key& key, const std::vector<std::string_view>& words,
                   std::optional<std::string>& value) {
    fields.scalar(key, ScalarKind{ChoiceKind{words}}, ScalarValue{},
                  [&](const ScalarValue& read) { value = words[std::get<Choice>(read).index]; });
}

void describe_count(Fields& fields, const Key& key, IntegerRange range, std::optional<std::int64_t>& value) {
    fields.scalar(key, ScalarKind{range}, ScalarValue{},
                  [&](const ScalarValue& read) { value = std::get<std::int64_t>(read); });
}

void describe_number(Fields& fields, const Key& key, NumberRange range, std::optional<double>& value) {
    fields.scalar(key, ScalarKind{range}, ScalarValue{},
                  [&](const ScalarValue& read) { value = std::get<double>(read); });
}

std::vector<std::string> texts_of(const std::vector<ScalarValue>& values) {
    std::vector<std::string> texts;
    for (const ScalarValue& value : values) texts.push_back(std::get<std::string>(value));
    return texts;
}

void describe_settings(Fields& fields, RunSettings& run) {
    describe_word(fields, {"policy", "who moves groups"}, {"none", "megatron", "stowage"}, run.policy);
    describe_word(fields, {"allocator", "of device memory"}, {"caching", "planned"}, run.allocator);
    describe_count(fields, {"rank", "pipeline rank"}, IntegerRange{0, 1'000'000}, run.rank);
    fields.optional_size({"offload_bytes", "policy stowage: of one microbatch"}, run.offload_bytes);
    describe_count(fields, {"reload_ahead", "policy stowage: in groups"}, kGroups, run.reload_ahead);
    describe_count(fields, {"join_after", "policy stowage: in commits"}, kGroups, run.join_after);
    describe_count(fields, {"steps", "that are timed"}, kSteps, run.steps);
    describe_number(fields, {"warmup_seconds", "before them"}, kSeconds, run.warmup_seconds);
    describe_count(fields, {"seed", "of parameters and tokens"}, IntegerRange{0, 1'000'000'000}, run.seed);
    describe_number(fields, {"routing_skew", "of the tokens, whatever is planned for"}, kSkew, run.routing_skew);
}

/// A slice or a variant: what it is called, how it runs, and keys of the scenario.
void describe_part(Fields& fields, Part& part, RunSettings& run, ScenarioDraft& draft, bool is_slice) {
    fields.text({"name", "what it is called", true}, part.name);
    const auto only = [&](const std::vector<ScalarValue>& values) { part.variants = texts_of(values); };
    if (is_slice) fields.list({"variants", "only these"}, ScalarKind{TextKind{}}, only, std::nullopt, {});
    describe_settings(fields, run);
    describe_scenario(fields, draft);
}

/// The same bytes on every file system, also where a name becomes that of a file.
bool is_name(const std::string& name) {
    return !name.empty() && name.size() <= 60 && std::all_of(name.begin(), name.end(), [](char letter) {
        return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
               (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' || letter == '.';
    });
}

class CaseReader {
public:
    explicit CaseReader(const std::filesystem::path& path) {
        Gathered& all = structure_;
        all.diagnostics.open(path.string());
        LoadedSource loaded = load_source(path);
        source_ = loaded.source ? loaded.source : std::make_shared<const SourceFile>(path.string(), "");
        if (!loaded.problem.empty()) all.diagnostics.add({source_, loaded.at, {}}, loaded.problem, loaded.hint);
        all.diagnostics.throw_if_any();
        root_ = parse_document(source_, all.diagnostics);
        if (root_.kind != Value::Kind::mapping && root_.kind != Value::Kind::invalid)
            fail(root_.at, {}, "expected a mapping that begins with schema: stowage/validation/1");
        all.diagnostics.throw_if_any();
    }

    ValidationFile read() {
        read_structure();
        structure_.diagnostics.throw_if_any();
        read_parts("slices", slices_);
        read_parts("variants", variants_);
        check_filters();
        ScenarioDraft scratch;
        read_base(structure_, scratch);
        structure_.diagnostics.throw_if_any();
        combine();
        if (!problems_.empty()) throw types::InputError(problems_);
        return std::move(file_);
    }

private:
    void fail(Mark at, const std::string& path, const std::string& message, const std::string& hint = {}) {
        structure_.diagnostics.add({source_, at, path}, message, hint);
    }

    void read_structure() {
        ReadFields fields(structure_, source_, root_, "", "", false);
        fields.schema(kValidationFile);
        fields.remark("source");
        fields.remark("sources");
        fields.text({"scenario", "the file that all of them start from", true}, base_);
        const auto set = [&](const std::vector<ScalarValue>& values) { file_.bars = texts_of(values); };
        fields.list({"bars", "what must hold"}, ScalarKind{TextKind{}}, set, std::nullopt, {});
        for (const char* parts : {"slices", "variants"}) fields.remark(parts);
        fields.finish();
        if (const Value* const base = member(root_, "scenario")) base_at_ = base->at;
    }

    void read_parts(const std::string& key, std::vector<Part>& parts) {
        const Value* const list = member(root_, key);
        if (list == nullptr) return;
        if (list->kind != Value::Kind::sequence || list->items.empty())
            return fail(list->at, key, "expected a list of mappings, each with a name");
        std::set<std::string> names;
        for (std::size_t i = 0; i < list->items.size(); ++i) {
            const Value& item = list->items[i];
            Part part{{}, key + "[" + std::to_string(i) + "]", &item, {}};
            if (item.kind != Value::Kind::mapping) {
                fail(item.at, part.path, "expected a mapping with a name");
                continue;
            }
            RunSettings run;
            ScenarioDraft draft;
            describe(structure_, part, run, draft);
            if (!is_name(part.name))
                fail(item.at, part.path, "expected a name of letters, digits, '-', '_' and '.', at most 60 of them");
            else if (!names.insert(part.name).second)
                fail(item.at, part.path, "a second " + in_quotes(part.name), "each name stands for one file");
            parts.push_back(std::move(part));
        }
    }

    void describe(Gathered& gathered, Part& part, RunSettings& run, ScenarioDraft& draft) const {
        ReadFields fields(gathered, source_, *part.value, part.path, "", true);
        describe_part(fields, part, run, draft, part.path.starts_with("slices"));
        fields.finish();
    }

    void check_filters() {
        for (const Part& slice : slices_)
            for (const std::string& name : slice.variants)
                if (std::none_of(variants_.begin(), variants_.end(), [&](const Part& one) { return one.name == name; }))
                    fail(slice.value->at, slice.path + ".variants", "there is no variant " + in_quotes(name));
    }

    void read_base(Gathered& gathered, ScenarioDraft& draft) const {
        const std::filesystem::path target(base_);
        const std::filesystem::path beside =
            target.is_absolute() ? target : std::filesystem::path(source_->name()).parent_path() / target;
        const Location here{source_, base_at_, "scenario"};
        read_file(gathered, beside.lexically_normal().string(), kScenarioFile, "", &here,
                  [&](Fields& fields) { describe_scenario(fields, draft); });
    }

    void combine() {
        const std::vector<Part> none{Part{}};
        for (const Part& slice : slices_.empty() ? none : slices_)
            for (const Part& variant : variants_.empty() ? none : variants_) {
                const bool left_out = !slice.variants.empty() && std::find(slice.variants.begin(), slice.variants.end(),
                                                                           variant.name) == slice.variants.end();
                if (!left_out) add_case(slice, variant);
            }
    }

    void add_case(Part slice, Part variant) {
        ValidationCase one;
        one.name = slice.name + (slice.name.empty() || variant.name.empty() ? "" : "/") + variant.name;
        if (one.name.empty()) one.name = std::filesystem::path(base_).stem().string();
        Gathered gathered;
        gathered.diagnostics.open(source_->name());
        ScenarioDraft draft;
        read_base(gathered, draft);
        for (Part* part : {&slice, &variant})
            if (part->value != nullptr) describe(gathered, *part, one.run, draft);
        finish(gathered, draft, one);
    }

    void finish(Gathered& gathered, ScenarioDraft& draft, ValidationCase& one) {
        try {
            one.loaded = finish_scenario(gathered, draft);
        } catch (const types::InputError& error) {
            const std::string text = error.what();
            if (!told_.insert(text).second) return;
            problems_ +=
                (problems_.empty() ? "" : "\n") + source_->name() + ": error: in " + in_quotes(one.name) + ":\n" + text;
            return;
        }
        one.loaded.scenario.name = one.name;
        if (file_.cases.size() == kMostCases)
            throw types::InputError(source_->name() + ": error: more than 10000 configurations");
        file_.cases.push_back(std::move(one));
    }

    Gathered structure_;
    SourcePointer source_;
    Value root_;
    std::string base_;
    Mark base_at_;
    std::vector<Part> slices_;
    std::vector<Part> variants_;
    std::set<std::string> told_;
    std::string problems_;
    ValidationFile file_;
};

}  // namespace

bool is_validation_file(const std::filesystem::path& path) {
    const LoadedSource loaded = load_source(path);
    if (!loaded.source || !loaded.problem.empty()) return false;
    Diagnostics ignored;
    const Value root = parse_document(loaded.source, ignored);
    const Value* const schema = root.kind == Value::Kind::mapping ? member(root, "schema") : nullptr;
    return schema != nullptr && schema->text == "stowage/validation/1";
}

ValidationFile read_validation_file(const std::filesystem::path& path) { return CaseReader(path).read(); }

}  // namespace stowage::reader
