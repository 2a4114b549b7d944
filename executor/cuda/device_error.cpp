#include "executor/cuda/device_error.hpp"

namespace stowage::executor {

DeviceError::DeviceError(const std::string& message) : types::Error(types::ExitCode::device, message) {}

}  // namespace stowage::executor
