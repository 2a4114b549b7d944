#include "reports/json.hpp"

namespace stowage::reports {
namespace {

constexpr std::size_t kLineWidth = 100;

/// Names of files are whatever bytes their owner chose; JSON is UTF-8.
std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

bool is_flat(const Json& value) {
    for (const Json& item : value)
        if (item.is_structured() && !item.empty()) return false;
    return true;
}

/// `{"a": 1, "b": [2, 3]}`: nlohmann's compact form has no spaces.
std::string on_one_line(const Json& value) {
    if (!value.is_structured()) return dump(value);
    std::string text;
    for (const auto& [key, item] : value.items()) {
        if (!text.empty()) text += ", ";
        if (value.is_object()) text += dump(Json(key)) + ": ";
        text += on_one_line(item);
    }
    text.insert(text.begin(), value.is_object() ? '{' : '[');
    text += value.is_object() ? '}' : ']';
    return text;
}

void write(const Json& value, std::size_t indent, std::string& text) {
    if (!value.is_structured() || is_flat(value)) {
        std::string line = on_one_line(value);
        if (!value.is_structured() || indent + line.size() <= kLineWidth) {
            text += line;
            return;
        }
    }
    text += value.is_object() ? "{" : "[";
    bool first = true;
    for (const auto& [key, item] : value.items()) {
        text += first ? "\n" : ",\n";
        first = false;
        text.append(indent + 2, ' ');
        if (value.is_object()) text += dump(Json(key)) + ": ";
        write(item, indent + 2, text);
    }
    text += '\n';
    text.append(indent, ' ');
    text += value.is_object() ? "}" : "]";
}

}  // namespace

std::string to_text(const Json& document) {
    std::string text;
    write(document, 0, text);
    text += '\n';
    return text;
}

}  // namespace stowage::reports
