#include "executor/engine/versions.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstddef>

namespace stowage::executor {
namespace {

using VersionFunction = std::size_t (*)();

std::size_t number_from(const char* library, const char* function) {
    void* const handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) return 0;
    const auto version = reinterpret_cast<VersionFunction>(dlsym(handle, function));
    const std::size_t number = version == nullptr ? 0 : version();
    dlclose(handle);
    return number;
}

}  // namespace

std::string cublaslt_version() {
    const std::size_t number = number_from("libcublasLt.so.13", "cublasLtGetVersion");
    if (number == 0) return "unknown";
    return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::string cudnn_version() {
    const std::size_t number = number_from("libcudnn.so.9", "cudnnGetVersion");
    if (number == 0) return "unknown";
    return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

}  // namespace stowage::executor
