#pragma once

#include <string>

#include "scenarios/types/error.hpp"

namespace stowage::executor {

/// The device, its driver or a library that runs on it failed, or there is none: exit code 5. The message is complete:
/// what failed, what was being done, where, and for memory what was asked for and what there is.
/// Needs no CUDA header, so that code that builds without the toolkit can throw it.
class DeviceError : public types::Error {
public:
    explicit DeviceError(const std::string& message);
};

}  // namespace stowage::executor
