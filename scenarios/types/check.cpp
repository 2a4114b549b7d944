#include "scenarios/types/check.hpp"

#include <stdexcept>
#include <string>

namespace stowage::types {

void fail_check(const char* condition, const char* file, int line, std::string_view message) {
    throw std::logic_error(std::string(file) + ":" + std::to_string(line) + ": " + std::string(message) + " (" +
                           condition + ")");
}

}  // namespace stowage::types
