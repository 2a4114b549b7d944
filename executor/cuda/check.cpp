#include "executor/cuda/check.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>

namespace stowage::executor {
namespace {

constinit std::atomic_flag release_was_reported;  // NOLINT(readability-identifier-naming): not a constant

/// Without the folders of the machine that built it, so that the same error reads the same everywhere.
std::string_view below_root(std::string_view file) {
    for (const std::string_view folder : {"tests/", "executor/", "profiler/"}) {
        const std::size_t start = file.rfind(folder);
        if (start != std::string_view::npos) return file.substr(start);
    }
    return file;
}

}  // namespace

std::string current_device_text() {
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return "no usable device";
    }
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return fmt::format("device {}", device);
    }
    return fmt::format("device {} ({})", device, properties.name);
}

std::string failure_message(cudaError_t code, std::string_view doing, std::source_location where,
                            std::string_view detail) {
    return fmt::format("{}: {}, while {}, on {}{}{} ({}:{})", cudaGetErrorName(code), cudaGetErrorString(code), doing,
                       current_device_text(), detail.empty() ? "" : "; ", detail, below_root(where.file_name()),
                       where.line());
}

void check(cudaError_t code, std::string_view doing, std::source_location where) {
    if (code == cudaSuccess) return;
    static_cast<void>(cudaGetLastError());
    throw DeviceError(failure_message(code, doing, where));
}

std::optional<std::string> release_failure(cudaError_t code, std::string_view releasing) {
    if (code == cudaSuccess || code == cudaErrorCudartUnloading) return std::nullopt;
    return fmt::format("{}: {}, while releasing {}; later failures of this kind are not reported",
                       cudaGetErrorName(code), cudaGetErrorString(code), releasing);
}

void report_release(cudaError_t code, std::string_view releasing) noexcept {
    try {
        const std::optional<std::string> failure = release_failure(code, releasing);
        if (failure && !release_was_reported.test_and_set()) std::fprintf(stderr, "warning: %s\n", failure->c_str());
    } catch (...) {  // no memory for the message
        std::fputs("warning: something of the device could not be released\n", stderr);
    }
}

}  // namespace stowage::executor
