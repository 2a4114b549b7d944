#pragma once

#include <span>
#include <string_view>

namespace stowage::reader {

/// The candidate with the least edit distance to `word`, empty if none is near: at most two edits, or a third of the
/// word's letters. Ties go to the first.
/// Cost: O(candidates * word * candidate letters); words over 64 letters are near nothing.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace stowage::reader
