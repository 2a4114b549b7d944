#include "executor/cuda/device_monitor.hpp"

#include <dlfcn.h>

#include <array>
#include <utility>

namespace stowage::executor {
namespace {

// Of NVML's interface, which is stable by contract; its header does not come with the toolkit. 0 is success.
using Result = int;
using Device = void*;
constexpr int kSmClock = 1;
constexpr int kMemoryClock = 2;
constexpr int kTemperatureOfGpu = 0;

template <class Function>
bool find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    return function != nullptr;
}

template <class Value>
std::optional<Value> ask(Result (*function)(Device, Value*), Device device) {
    Value value{};
    if (function == nullptr || function(device, &value) != 0) return std::nullopt;
    return value;
}

std::optional<unsigned> ask(Result (*function)(Device, int, unsigned*), Device device, int which) {
    unsigned value = 0;
    if (function == nullptr || function(device, which, &value) != 0) return std::nullopt;
    return value;
}

std::optional<double> in_watts(std::optional<unsigned> milliwatts) {
    if (!milliwatts) return std::nullopt;
    return static_cast<double>(*milliwatts) / 1000;
}

}  // namespace

/// The library, opened and started, and the functions that are used. Those that an old library lacks are null.
class DeviceMonitor::Library {
public:
    Library() = default;
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    Library(Library&&) = delete;
    Library& operator=(Library&&) = delete;
    ~Library() {
        if (started_) shut_down_();
        if (handle_ != nullptr) dlclose(handle_);
    }

    /// Why the device cannot be asked; empty if it can.
    std::string open(const std::string& pci_bus_id, Device& device) {
        handle_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        if (handle_ == nullptr) return "libnvidia-ml.so.1 cannot be opened";
        if (!find_functions()) return "libnvidia-ml.so.1 lacks a function that is needed";
        if (const Result code = start_(); code != 0) return "starting NVML failed: " + text(code);
        started_ = true;
        if (const Result code = by_bus_id_(pci_bus_id.c_str(), &device); code != 0)
            return "NVML does not know the device at " + pci_bus_id + ": " + text(code);
        return "";
    }

    [[nodiscard]] DeviceState read(Device device) const {
        DeviceState state;
        state.sm_clock_mhz = ask(clock_, device, kSmClock);
        state.memory_clock_mhz = ask(clock_, device, kMemoryClock);
        state.power_watts = in_watts(ask(power_, device));
        state.power_limit_watts = in_watts(ask(power_limit_, device));
        state.temperature_celsius = ask(temperature_, device, kTemperatureOfGpu);
        if (const auto reasons = ask(throttle_, device)) state.throttle_reasons = *reasons;
        return state;
    }

private:
    bool find_functions() {
        find(handle_, "nvmlErrorString", error_string_);
        find(handle_, "nvmlDeviceGetClockInfo", clock_);
        find(handle_, "nvmlDeviceGetPowerUsage", power_);
        find(handle_, "nvmlDeviceGetEnforcedPowerLimit", power_limit_);
        find(handle_, "nvmlDeviceGetTemperature", temperature_);
        // The newer name of one function.
        if (!find(handle_, "nvmlDeviceGetCurrentClocksEventReasons", throttle_))
            find(handle_, "nvmlDeviceGetCurrentClocksThrottleReasons", throttle_);
        return find(handle_, "nvmlInit_v2", start_) && find(handle_, "nvmlShutdown", shut_down_) &&
               find(handle_, "nvmlDeviceGetHandleByPciBusId_v2", by_bus_id_);
    }

    [[nodiscard]] std::string text(Result code) const {
        return error_string_ != nullptr ? error_string_(code) : "NVML error " + std::to_string(code);
    }

    void* handle_ = nullptr;
    bool started_ = false;
    Result (*start_)() = nullptr;
    Result (*shut_down_)() = nullptr;
    const char* (*error_string_)(Result) = nullptr;
    Result (*by_bus_id_)(const char*, Device*) = nullptr;
    Result (*clock_)(Device, int, unsigned*) = nullptr;
    Result (*power_)(Device, unsigned*) = nullptr;
    Result (*power_limit_)(Device, unsigned*) = nullptr;
    Result (*temperature_)(Device, int, unsigned*) = nullptr;
    Result (*throttle_)(Device, unsigned long long*) = nullptr;
};

DeviceMonitor::DeviceMonitor(const std::string& pci_bus_id) : library_(std::make_unique<Library>()) {
    absence_ = library_->open(pci_bus_id, device_);
}

DeviceMonitor::DeviceMonitor(DeviceMonitor&&) noexcept = default;
DeviceMonitor& DeviceMonitor::operator=(DeviceMonitor&&) noexcept = default;
DeviceMonitor::~DeviceMonitor() = default;

DeviceState DeviceMonitor::read() const { return absence_.empty() ? library_->read(device_) : DeviceState{}; }

std::vector<std::string> throttle_names(std::uint64_t reasons) {
    constexpr std::array<const char*, 9> kNames = {"gpu_idle",
                                                   "applications_clocks_setting",
                                                   "sw_power_cap",
                                                   "hw_slowdown",
                                                   "sync_boost",
                                                   "sw_thermal_slowdown",
                                                   "hw_thermal_slowdown",
                                                   "hw_power_brake_slowdown",
                                                   "display_clock_setting"};
    std::vector<std::string> names;
    for (unsigned bit = 0; bit < 64; ++bit) {
        if ((reasons >> bit & 1U) == 0) continue;
        names.push_back(bit < kNames.size() ? kNames.at(bit) : "bit_" + std::to_string(bit));
    }
    return names;
}

}  // namespace stowage::executor
