#pragma once

#include <string>

#include "scenarios/types/bytes.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::executor {

/// There was no room: says for what, how much was needed and what is in use. Exit code 5.
class OutOfMemory : public types::Error {
public:
    OutOfMemory(const std::string& what, types::Bytes wanted, types::Bytes allocated, types::Bytes reserved);
};

}  // namespace stowage::executor
