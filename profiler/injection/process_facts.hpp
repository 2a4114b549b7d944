#pragma once

#include <string>
#include <vector>

namespace stowage::profiler {

/// The arguments that this process was started with, with blanks between them; "" if the system does not say.
std::string command_line();

/// Every file this process has loaded whose name begins with libcupti.so, each once.
std::vector<std::string> loaded_cuptis();

}  // namespace stowage::profiler
