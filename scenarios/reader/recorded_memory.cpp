#include "scenarios/reader/recorded_memory.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace stowage::reader {
namespace {

constexpr std::string_view kForm = "a list of entries with name, args, env and recorded";

class TableReader {
public:
    explicit TableReader(const std::filesystem::path& path) {
        diagnostics_.open(path.string());
        LoadedSource loaded = load_source(path);
        source_ = loaded.source ? loaded.source : std::make_shared<const SourceFile>(path.string(), "");
        if (!loaded.problem.empty()) diagnostics_.add({source_, loaded.at, {}}, loaded.problem, loaded.hint);
        diagnostics_.throw_if_any();
    }

    std::vector<RecordedRun> read() {
        const Value root = parse_document(source_, diagnostics_);
        diagnostics_.throw_if_any();
        if (root.kind != Value::Kind::sequence) fail(root, {}, "expected " + std::string(kForm));
        for (const Value& entry : root.items) read_entry(entry);
        diagnostics_.throw_if_any();
        return std::move(runs_);
    }

private:
    void fail(const Value& value, const std::string& path, const std::string& message) {
        diagnostics_.add({source_, value.at, path}, message);
    }

    /// Null if there is none.
    static const Value* member(const Value& mapping, std::string_view key) {
        const auto at = std::find_if(mapping.members.begin(), mapping.members.end(),
                                     [&](const Member& one) { return one.key == key; });
        return at == mapping.members.end() ? nullptr : &at->value;
    }

    const Value* need_mapping(const Value& parent, std::string_view key, const std::string& path) {
        const Value* const found = member(parent, key);
        if (found != nullptr && found->kind == Value::Kind::mapping) return found;
        fail(found != nullptr ? *found : parent, path, "expected a mapping '" + std::string(key) + "'");
        return nullptr;
    }

    void read_entry(const Value& entry) {
        const Value* const name = member(entry, "name");
        if (name == nullptr || name->kind != Value::Kind::scalar || name->text.empty())
            return fail(entry, {}, "an entry without a name; expected " + std::string(kForm));
        const Value* const arguments = need_mapping(entry, "args", name->text);
        const Value* const recorded = need_mapping(entry, "recorded", name->text);
        if (arguments == nullptr || recorded == nullptr) return;
        auto job = std::make_shared<Value>();
        job->kind = Value::Kind::mapping;
        job->at = arguments->at;
        for (const Member& one : entry.members)
            if (one.key == "args" || one.key == "env") job->members.push_back(one);
        for (const Member& gpu : recorded->members) read_run(name->text, gpu, job);
    }

    void read_run(const std::string& name, const Member& gpu, const std::shared_ptr<const Value>& job) {
        const std::string path = name + "." + gpu.key;
        RecordedRun run;
        run.name = name;
        run.gpu = gpu.key;
        run.arguments = job;
        run.source = source_;
        const Value* const gpus = member(gpu.value, "gpus");
        const auto count = gpus == nullptr ? std::nullopt : whole(*gpus);
        if (!count || *count < 1 || *count > 1'000'000)
            return fail(gpu.value, path + ".gpus", "expected the number of GPUs, at least 1");
        run.gpus = *count;
        run.allocated = largest(gpu.value, "mem_allocated_bytes", path);
        run.peak_allocated = largest(gpu.value, "mem_max_allocated_bytes", path);
        runs_.push_back(std::move(run));
    }

    std::optional<std::int64_t> largest(const Value& run, std::string_view key, const std::string& path) {
        const Value* const series = member(run, key);
        if (series == nullptr) return std::nullopt;
        const Value* const most = member(*series, "max");
        const auto bytes = most == nullptr ? std::nullopt : whole(*most);
        if (!bytes || *bytes <= 0) {
            fail(*series, path + "." + std::string(key), "expected 'max' with a number of bytes");
            return std::nullopt;
        }
        return bytes;
    }

    /// Loggers write whole numbers as 20663463936.0.
    static std::optional<std::int64_t> whole(const Value& value) {
        double number = 0;
        const char* const end = value.text.data() + value.text.size();
        const auto read = std::from_chars(value.text.data(), end, number);
        constexpr double kLargest = 1e15;
        if (value.kind != Value::Kind::scalar || read.ec != std::errc{} || read.ptr != end) return std::nullopt;
        if (!(std::abs(number) <= kLargest) || std::floor(number) != number) return std::nullopt;
        return static_cast<std::int64_t>(number);
    }

    Diagnostics diagnostics_;
    SourcePointer source_;
    std::vector<RecordedRun> runs_;
};

}  // namespace

std::vector<RecordedRun> read_recorded_memory(const std::filesystem::path& table) { return TableReader(table).read(); }

}  // namespace stowage::reader
