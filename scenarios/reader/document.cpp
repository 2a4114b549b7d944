#include "scenarios/reader/document.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <set>
#include <sstream>
#include <utility>

namespace stowage::reader {
namespace {

constexpr std::size_t kDeepest = 32;
constexpr std::size_t kMostValues = 100'000;

Mark to_mark(const YAML::Mark& mark) {
    if (mark.is_null()) return Mark{1, 1};
    return Mark{mark.line + 1, mark.column + 1};
}

/// Thrown out of the parser once an error makes the rest of the document not worth reading.
struct Stop {};

/// Builds the tree from the parser's events. Aliases are not followed: a file written by hand needs none, and a few
/// lines of them can stand for billions of values.
class TreeBuilder : public YAML::EventHandler {
public:
    TreeBuilder(SourcePointer source, Diagnostics& diagnostics)
        : source_(std::move(source)), diagnostics_(diagnostics) {}

    Value take() { return std::move(root_); }
    void error(Mark at, std::string message, std::string hint = {}) {
        diagnostics_.add(Location{source_, at, {}}, std::move(message), std::move(hint));
    }

    void OnDocumentStart(const YAML::Mark& mark) override {
        if (++documents_ < 2) return;
        error(to_mark(mark), "found a second document, expected one document in a file");
        throw Stop{};
    }
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
        Value value;
        value.at = to_mark(mark);
        place(std::move(value));
    }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
        error(to_mark(mark), "found an alias, expected a value", "aliases are not followed; write the value out");
        place(invalid(mark));
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                  const std::string& text) override {
        if (tagged(mark, tag)) return place(invalid(mark));
        Value value;
        value.kind = Value::Kind::scalar;
        value.at = to_mark(mark);
        value.quoted = tag == "!";
        value.text = text;
        place(std::move(value));
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                         YAML::EmitterStyle::value /*style*/) override {
        open(mark, tag, Value::Kind::sequence);
    }
    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                    YAML::EmitterStyle::value /*style*/) override {
        open(mark, tag, Value::Kind::mapping);
    }
    void OnSequenceEnd() override { close(); }
    void OnMapEnd() override { close(); }

private:
    struct Frame {
        Value value;
        std::set<std::string> keys;
        bool has_key = false;
        bool keep = true;  ///< false: the next value belongs to a key that was refused
        Member next;
    };

    static Value invalid(const YAML::Mark& mark) {
        Value value;
        value.kind = Value::Kind::invalid;
        value.at = to_mark(mark);
        return value;
    }

    bool tagged(const YAML::Mark& mark, const std::string& tag) {
        if (tag.empty() || tag == "?" || tag == "!") return false;
        error(to_mark(mark), "found the tag " + in_quotes(tag) + ", expected a plain value",
              "tags are not read; remove it");
        return true;
    }

    void open(const YAML::Mark& mark, const std::string& tag, Value::Kind kind) {
        if (stack_.size() >= kDeepest) {
            error(to_mark(mark), "found more than " + std::to_string(kDeepest) + " levels of nesting, expected fewer");
            throw Stop{};
        }
        Frame frame;
        frame.value.kind = tagged(mark, tag) ? Value::Kind::invalid : kind;
        frame.value.at = to_mark(mark);
        mapping_.push_back(kind == Value::Kind::mapping);
        stack_.push_back(std::move(frame));
    }

    void close() {
        Value value = std::move(stack_.back().value);
        stack_.pop_back();
        mapping_.pop_back();
        place(std::move(value));
    }

    void place(Value value) {
        if (++values_ > kMostValues) {
            error(value.at, "found more than " + std::to_string(kMostValues) + " values, expected fewer");
            throw Stop{};
        }
        if (stack_.empty()) {
            root_ = std::move(value);
        } else if (!mapping_.back()) {
            stack_.back().value.items.push_back(std::move(value));
        } else if (stack_.back().has_key) {
            place_member(std::move(value));
        } else {
            place_key(std::move(value));
        }
    }

    void place_key(Value key) {
        Frame& frame = stack_.back();
        frame.has_key = true;
        frame.keep = key.kind == Value::Kind::scalar;
        if (!frame.keep && key.kind != Value::Kind::invalid) error(key.at, "expected plain text as a key");
        if (frame.keep && !frame.keys.insert(key.text).second) {
            error(key.at, "duplicate key " + in_quotes(key.text), "each key may stand once in a mapping");
            frame.keep = false;
        }
        frame.next = Member{std::move(key.text), key.at, {}};
    }

    void place_member(Value value) {
        Frame& frame = stack_.back();
        frame.has_key = false;
        if (!frame.keep) return;
        if (value.kind == Value::Kind::null) value.at = frame.next.at;
        frame.next.value = std::move(value);
        frame.value.members.push_back(std::move(frame.next));
    }

    SourcePointer source_;
    Diagnostics& diagnostics_;
    std::vector<Frame> stack_;
    std::vector<bool> mapping_;
    Value root_;
    std::size_t values_ = 0;
    int documents_ = 0;
};

Value unreadable() {
    Value value;
    value.kind = Value::Kind::invalid;
    return value;
}

}  // namespace

Value parse_document(const SourcePointer& source, Diagnostics& diagnostics) {
    TreeBuilder builder(source, diagnostics);
    try {
        std::istringstream stream(source->text());
        YAML::Parser parser(stream);
        while (parser.HandleNextDocument(builder)) {
        }
        return builder.take();
    } catch (const Stop&) {
        return unreadable();
    } catch (const YAML::Exception& exception) {
        builder.error(to_mark(exception.mark), "syntax: " + exception.msg);
        return unreadable();
    }
}

}  // namespace stowage::reader
