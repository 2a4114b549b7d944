#include "scenarios/types/time.hpp"

#include <cmath>

#include "scenarios/types/check.hpp"

namespace stowage::types {
namespace {

Nanoseconds round_up(double seconds) { return Nanoseconds{static_cast<std::int64_t>(std::ceil(seconds * 1e9))}; }

}  // namespace

Nanoseconds transfer_time(Bytes size, BytesPerSecond rate) {
    STOWAGE_CHECK(rate.rate > 0, "a transfer needs a positive rate");
    return round_up(static_cast<double>(size.count) / rate.rate);
}

Nanoseconds compute_time(double flops, FlopsPerSecond rate) {
    STOWAGE_CHECK(rate.rate > 0, "a computation needs a positive rate");
    return round_up(flops / rate.rate);
}

}  // namespace stowage::types
