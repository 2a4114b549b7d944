#include "profiler/cupti/cupti_error.hpp"

namespace stowage::profiler {

CuptiError::CuptiError(const std::string& message) : types::Error(types::ExitCode::device, message) {}

}  // namespace stowage::profiler
