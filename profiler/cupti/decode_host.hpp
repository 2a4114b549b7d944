#pragma once

// The half of decoding that is about the host; decode.hpp is what others include.

#include "profiler/cupti/decode.hpp"

namespace stowage::profiler {

inline types::Nanoseconds in_time(std::uint64_t nanoseconds) {
    return types::Nanoseconds(static_cast<std::int64_t>(nanoseconds));
}

inline types::Bytes in_bytes(std::uint64_t bytes) { return types::Bytes{static_cast<std::int64_t>(bytes)}; }

/// CUPTI has a null pointer where there is no name.
inline std::uint32_t name_index(const char* name, Decoded& into) {
    return into.names.index_of(name == nullptr ? "" : name);
}

/// Adds a record of what the host did; others are passed over, and so are calls that are not kept.
void decode_host_record(const CUpti_Activity& record, Decoded& into);

}  // namespace stowage::profiler
