#include "profiler/cupti/expect.hpp"

#include <fmt/format.h>

#include "profiler/cupti/cupti_error.hpp"

namespace stowage::profiler {

void expect(CuptiApi& cupti, CUptiResult result, const char* call) {
    if (result == CUPTI_SUCCESS) return;
    throw CuptiError(fmt::format(
        "{} failed: {} (CUPTI error {}); another profiler in this process may hold CUPTI, which serves one at a time: "
        "run without Nsight, compute-sanitizer, cuda-gdb or torch.profiler",
        call, cupti.result_text(result), static_cast<int>(result)));
}

}  // namespace stowage::profiler
