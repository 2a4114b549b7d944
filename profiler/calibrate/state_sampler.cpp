#include "profiler/calibrate/state_sampler.hpp"

#include <chrono>

namespace stowage::calibrate {
namespace {

constexpr auto kPause = std::chrono::milliseconds(1);

/// Without sleeping, which takes longer than it is asked to.
void pause(const executor::Event& done) {
    const auto end = std::chrono::steady_clock::now() + kPause;
    while (std::chrono::steady_clock::now() < end && !done.is_done()) {
    }
}

}  // namespace

State StateSampler::until(const executor::Event& done) const {
    State sum;
    int samples = 0;
    do {
        const executor::DeviceState now = monitor_.read();
        sum.clock_mhz += now.sm_clock_mhz.value_or(0);
        sum.watts += now.power_watts.value_or(0);
        ++samples;
        pause(done);
    } while (!done.is_done());
    return {sum.clock_mhz / samples, sum.watts / samples};
}

}  // namespace stowage::calibrate
