#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stowage::executor {

/// Clocks, power and temperature at one moment; what the driver does not say is absent.
struct DeviceState {
    std::optional<unsigned> sm_clock_mhz;
    std::optional<unsigned> memory_clock_mhz;
    std::optional<double> power_watts;
    std::optional<double> power_limit_watts;
    std::optional<unsigned> temperature_celsius;
    std::optional<std::uint64_t> throttle_reasons;  ///< a set of NVML's bits; `throttle_names` has their names
};

/// "sw_power_cap" and so on, for each bit that is set; "gpu_idle" too, which slows nothing. Unknown bits: "bit_9".
std::vector<std::string> throttle_names(std::uint64_t reasons);

/// Reads the state of one device through the driver's management library, which is opened when this is made and not
/// linked. Without the library, or if it does not know the device, every state is empty and `absence` says why.
class DeviceMonitor {
public:
    /// `pci_bus_id` as DeviceInfo has it.
    explicit DeviceMonitor(const std::string& pci_bus_id);
    DeviceMonitor(const DeviceMonitor&) = delete;
    DeviceMonitor& operator=(const DeviceMonitor&) = delete;
    DeviceMonitor(DeviceMonitor&&) noexcept;
    DeviceMonitor& operator=(DeviceMonitor&&) noexcept;
    ~DeviceMonitor();

    /// Cost: tens of microseconds of host time; the device goes on.
    [[nodiscard]] DeviceState read() const;
    /// Empty if the library answers.
    [[nodiscard]] const std::string& absence() const { return absence_; }

private:
    class Library;
    std::unique_ptr<Library> library_;
    void* device_ = nullptr;
    std::string absence_;
};

}  // namespace stowage::executor
