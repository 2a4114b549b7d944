#pragma once

#include <cupti.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/cupti/activity.hpp"

namespace stowage::profiler {

/// Kernel names, each once; the first is "".
class NameTable {
public:
    NameTable() { index_of(""); }
    std::uint32_t index_of(const std::string& name);
    [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

private:
    std::vector<std::string> names_;
    std::unordered_map<std::string, std::uint32_t> indices_;
};

/// Records of CUPTI turned into ours.
struct Decoded {
    NameTable names;
    std::vector<Activity> activities;                                 ///< `issued_under` is not known yet
    std::unordered_map<std::uint32_t, OperationNumber> issued_under;  ///< by correlation
    std::uint64_t untimed = 0;
};

/// Adds one record; those of kinds that are not used are passed over. The only place that knows CUPTI's structs, which
/// change their names with every version: a newer CUPTI appends fields to them and keeps the old ones where they are.
void decode(const CUpti_Activity& record, Decoded& into);

/// Adds all of `more`.
void append(Decoded& into, const Decoded& more);

}  // namespace stowage::profiler
