#pragma once

#include <set>
#include <string>
#include <vector>

#include "scenarios/reader/document.hpp"
#include "scenarios/reader/fields.hpp"
#include "scenarios/reader/source_map.hpp"

namespace stowage::reader {

/// What one run of the reader gathers over all its files.
struct Gathered {
    Diagnostics diagnostics;
    SourceMap where;
    std::set<std::string, std::less<>> failed;  ///< paths whose value could not be read: later checks pass them over
};

/// Answers a description from one mapping of a file. `finish` must be called once everything was asked for: it reports
/// the keys nobody asked for. Every error goes to `gathered`; nothing is thrown.
class ReadFields : public Fields {
public:
    /// `local` is the mapping's path in its file, `global` that in the scenario. With `overriding`, no key is required.
    ReadFields(Gathered& gathered, SourcePointer source, const Value& mapping, std::string local, std::string global,
               bool overriding);

    void schema(const FileKind& kind) override;
    void scalar(const Key& key, const ScalarKind& kind, const ScalarValue& current, const SetScalar& set) override;
    void list(const Key& key, const ScalarKind& item, const SetList& set, const std::optional<ScalarKind>& instead,
              const SetScalar& set_instead) override;
    void group(const Key& key, const Describe& describe) override;
    void groups(const Key& key, const Describe& describe_item, const std::function<void()>& done) override;
    std::string reference(const Key& key, const FileKind& kind, const Describe& describe) override;
    void text_map(const Key& key, std::map<std::string, std::string>& values) override;
    void remark(std::string_view name) override;
    void refused(std::string_view name, std::string_view hint) override;
    void problem(std::string_view name, const std::string& message) override;

    void finish();

private:
    const Member* ask(std::string_view name);
    const Value* ask_value(const Key& key);
    void fail(std::string_view name, Mark at, std::string message, std::string hint = {});
    void wrong(std::string_view name, const Value& value, const std::string& wanted, std::string hint = {});
    void describe_inside(std::string_view name, const Value& mapping, bool overriding, const Describe& describe);
    std::string read_referenced(const Key& key, const Value& path, const FileKind& kind, const Describe& describe);
    [[nodiscard]] std::string local(std::string_view name) const;
    [[nodiscard]] std::string global(std::string_view name) const;

    Gathered& gathered_;
    SourcePointer source_;
    const Value& mapping_;
    std::string local_;
    std::string global_;
    bool overriding_;
    std::vector<std::string_view> asked_;
    std::vector<std::string_view> offered_;  ///< what a hint may suggest
};

/// Reads a file as `kind` with `describe`. Errors go to `gathered`; `global` is the path of its root in the scenario.
/// `from_here`: where to report a file that cannot be opened, if another file refers to it.
void read_file(Gathered& gathered, const std::string& path, const FileKind& kind, const std::string& global,
               const Location* from_here, const Fields::Describe& describe);

}  // namespace stowage::reader
