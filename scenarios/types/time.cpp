#include "scenarios/types/time.hpp"

#include <cmath>
#include <sstream>

#include "scenarios/types/check.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::types {
namespace {

/// No transfer and no kernel of training takes this long; sums of what is shorter stay far inside 64 bits.
constexpr double kLongestSeconds = 3600;

Nanoseconds round_up(double seconds, const char* what, double amount, double rate) {
    if (seconds <= kLongestSeconds) return Nanoseconds{static_cast<std::int64_t>(std::ceil(seconds * 1e9))};
    std::ostringstream message;
    message << "one operation would take more than an hour: " << amount << ' ' << what << " at " << rate
            << " a second\nhint: look at the sizes of the model and the batch, and at the hardware's rates";
    throw UnsupportedError(message.str());
}

}  // namespace

Nanoseconds transfer_time(Bytes size, BytesPerSecond rate) {
    STOWAGE_CHECK(rate.rate > 0, "a transfer needs a positive rate");
    const auto bytes = static_cast<double>(size.count);
    return round_up(bytes / rate.rate, "bytes", bytes, rate.rate);
}

Nanoseconds compute_time(double flops, FlopsPerSecond rate) {
    STOWAGE_CHECK(rate.rate > 0, "a computation needs a positive rate");
    return round_up(flops / rate.rate, "FLOP", flops, rate.rate);
}

}  // namespace stowage::types
