#pragma once

// Makes ranges of their two sides, which come apart: in other buffers, in either order, often minutes later.
//
// Tested by: tests/profiler/cupti/range_pairing_test.cpp.

#include <cstdint>
#include <map>
#include <vector>

#include "profiler/cupti/decode.hpp"

namespace stowage::profiler {

class RangePairing {
public:
    void add(const std::vector<RangeEdge>& edges);

    /// The ranges that have ended since the last call, and those that are open, by their starts.
    /// Ends whose starts have not come are kept: they may be on their way.
    [[nodiscard]] std::vector<NvtxRange> take();

    /// Renumbers the names of what is kept, when the table they are in is replaced.
    void rename(const NameTable& from, NameTable& into);

private:
    std::map<std::uint32_t, NvtxRange> open_;
    std::map<std::uint32_t, types::Nanoseconds> ends_;
    std::vector<NvtxRange> complete_;
};

}  // namespace stowage::profiler
