#include "executor/engine/out_of_memory.hpp"

#include <fmt/format.h>

namespace stowage::executor {

OutOfMemory::OutOfMemory(const std::string& what, types::Bytes wanted, types::Bytes allocated, types::Bytes reserved)
    : Error(types::ExitCode::device,
            fmt::format("error: out of {}: {} bytes asked for, {} are in use and {} reserved\n"
                        "hint: offload more, recompute, or choose smaller microbatches; 'stowage simulate' says what "
                        "the step needs",
                        what, wanted.count, allocated.count, reserved.count)) {}

}  // namespace stowage::executor
