#pragma once

#include "executor/cuda/device_monitor.hpp"
#include "executor/cuda/event.hpp"
#include "profiler/calibrate/measurements.hpp"

namespace stowage::calibrate {

/// Reads clock and power while the device works.
class StateSampler {
public:
    explicit StateSampler(const std::string& pci_bus_id) : monitor_(pci_bus_id) {}
    [[nodiscard]] const std::string& absence() const { return monitor_.absence(); }
    [[nodiscard]] double power_limit_watts() const { return monitor_.read().power_limit_watts.value_or(0); }
    /// Reads, with pauses, until `done` is done, at least once. Means; 0 for what the driver does not say.
    /// Throws: DeviceError.
    [[nodiscard]] State until(const executor::Event& done) const;

private:
    executor::DeviceMonitor monitor_;
};

}  // namespace stowage::calibrate
