#include "scenarios/reader/key_catalogue.hpp"

#include <map>
#include <set>
#include <utility>

#include "scenarios/reader/drafts.hpp"

namespace stowage::reader {
namespace {

using Homes = std::map<std::string, std::set<std::string>, std::less<>>;

/// Notes under which path each key is asked for.
class CollectKeys : public Fields {
public:
    CollectKeys(Homes& homes, std::string path) : homes_(homes), path_(std::move(path)) {}

    void schema(const FileKind& /*kind*/) override {}
    void scalar(const Key& key, const ScalarKind& /*kind*/, const ScalarValue& /*current*/,
                const SetScalar& /*set*/) override {
        note(key);
    }
    void list(const Key& key, const ScalarKind& /*item*/, const SetList& /*set*/,
              const std::optional<ScalarKind>& /*instead*/, const SetScalar& /*set_instead*/) override {
        note(key);
    }
    void group(const Key& key, const Describe& describe) override { inside(key, describe); }
    void groups(const Key& key, const Describe& describe_item, const std::function<void()>& /*done*/) override {
        inside(key, describe_item);
    }
    std::string reference(const Key& key, const FileKind& /*kind*/, const Describe& describe) override {
        inside(key, describe);
        return {};
    }
    void text_map(const Key& key, std::map<std::string, std::string>& /*values*/) override { note(key); }
    void remark(std::string_view /*name*/) override {}
    void refused(std::string_view /*name*/, std::string_view /*hint*/) override {}
    void problem(std::string_view /*name*/, const std::string& /*message*/) override {}

private:
    void note(const Key& key) { homes_[std::string(key.name)].insert(path_); }
    void inside(const Key& key, const Describe& describe) {
        note(key);
        CollectKeys collect(homes_, (path_.empty() ? "" : path_ + ".") + std::string(key.name));
        describe(collect);
    }

    Homes& homes_;
    std::string path_;
};

Homes collect_homes() {
    Homes homes;
    ScenarioDraft draft;
    CollectKeys collect(homes, "");
    describe_scenario(collect, draft);
    return homes;
}

}  // namespace

std::string home_of_key(std::string_view key) {
    static const Homes homes = collect_homes();
    const auto found = homes.find(key);
    if (found == homes.end() || found->second.size() != 1) return {};
    const std::string& home = *found->second.begin();
    return home.empty() ? "the scenario's first level" : "'" + home + "'";
}

}  // namespace stowage::reader
