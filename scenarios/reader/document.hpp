#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/reader/diagnostics.hpp"

namespace stowage::reader {

struct Member;

/// A YAML value with the place it stands at. `invalid` is one that was already reported and is to be passed over.
struct Value {
    enum class Kind : std::uint8_t { null, scalar, sequence, mapping, invalid };
    Kind kind = Kind::null;
    Mark at;
    bool quoted = false;          ///< a scalar in quotes is text whatever it looks like
    std::string text;             ///< of a scalar
    std::vector<Value> items;     ///< of a sequence
    std::vector<Member> members;  ///< of a mapping, in the file's order, each key once
};

struct Member {
    std::string key;
    Mark at;  ///< of the key
    Value value;
};

/// The one document of a file as a tree. Syntax errors, duplicate keys, aliases, tags, a second document, more than 32
/// levels or 100,000 values are added to `diagnostics`.
/// Result: the root; of kind `invalid` if nothing can be read, `null` for an empty document.
/// Cost: linear in the file.
Value parse_document(const SourcePointer& source, Diagnostics& diagnostics);

}  // namespace stowage::reader
