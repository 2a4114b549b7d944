#pragma once

#include <string>

namespace stowage::executor {

/// "13.1.0.3" and "9.14.0": of the libraries that this process has loaded; "unknown" if they do not say.
std::string cublaslt_version();
std::string cudnn_version();

}  // namespace stowage::executor
