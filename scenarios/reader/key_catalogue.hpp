#pragma once

#include <string>
#include <string_view>

namespace stowage::reader {

/// The only group of the language that has this key, as `'parallel'`; empty if no group or several have it. For hints
/// about keys that stand in the wrong group.
std::string home_of_key(std::string_view key);

}  // namespace stowage::reader
