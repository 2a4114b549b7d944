#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stowage::reader {

/// The words of `[a b]`, `a b`, `a,b` or `['a', 'b']`.
std::vector<std::string> list_words(std::string_view text);

}  // namespace stowage::reader
