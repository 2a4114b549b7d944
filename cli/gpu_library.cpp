#include "cli/gpu_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <system_error>

#include "cli/gpu/gpu_version.hpp"
#include "cli/verb.hpp"

namespace stowage::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libstowage_gpu.so";
constexpr const char* kOverride = "STOWAGE_GPU_LIBRARY";
constexpr const char* kNeeds =
    "hint: it needs the driver, and where the loader finds them cuBLASLt and CUPTI of CUDA 13 (libcublasLt.so.13, "
    "libcupti.so.13) and cuDNN 9 (libcudnn.so.9); LD_LIBRARY_PATH adds folders";

#ifdef STOWAGE_WITHOUT_CUDA
constexpr const char* kNotThere =
    "built without CUDA; use the cuda preset\n"
    "hint: 'cmake --preset cuda' needs the CUDA toolkit; plan, simulate and check need neither it nor a GPU";
#else
constexpr const char* kNotThere = "";
#endif

[[noreturn]] void fail(const std::string& verb, const std::string& message) {
    throw NoDeviceError(verb + ": " + message);
}

bool is_there(const fs::path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
}

std::optional<fs::path> named_by_environment() {
    const char* const named = std::getenv(kOverride);
    if (named == nullptr || *named == '\0') return std::nullopt;
    return fs::path(named);
}

[[noreturn]] void fail_not_there(const std::string& verb, const std::vector<fs::path>& places) {
    if (*kNotThere != '\0') fail(verb, kNotThere);
    std::string looked;
    for (const fs::path& place : places) looked += (looked.empty() ? "" : " and ") + place.string();
    fail(verb, fmt::format("there is no {}; looked for {}\nhint: build the target stowage_gpu, or name the file in {}",
                           kName, looked, kOverride));
}

fs::path find_library(const std::string& verb) {
    if (const auto named = named_by_environment()) {
        if (!is_there(*named)) fail(verb, fmt::format("{} names no file: {}", kOverride, named->string()));
        return fs::absolute(*named);  // without a slash dlopen would search elsewhere
    }
    const std::vector<fs::path> places = gpu_library_places();
    for (const fs::path& place : places)
        if (is_there(place)) return place;
    fail_not_there(verb, places);
}

/// The function that `library` exports under `name`.
template <class Function>
Function exported(const std::string& verb, void* library, const fs::path& path, const char* name) {
    void* const found = dlsym(library, name);
    if (found == nullptr)
        fail(verb, fmt::format("{} has no {}: it is not the library of this version of stowage", path.string(), name));
    return reinterpret_cast<Function>(found);
}

}  // namespace

std::vector<fs::path> gpu_library_places() {
    std::error_code failed;
    const fs::path folder = fs::read_symlink("/proc/self/exe", failed).parent_path();
    return {folder / kName, (folder / STOWAGE_LIBRARY_FOLDER / kName).lexically_normal()};
}

GpuVerbs& open_gpu_verbs(const std::string& verb) {
    const fs::path path = find_library(verb);
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* const why = dlerror();
        fail(verb, fmt::format("{} cannot be opened: {}\n{}", path.string(), why == nullptr ? "no reason given" : why,
                               kNeeds));
    }
    const int version = exported<GpuVersionFunction>(verb, library, path, kGpuVersionSymbol)();
    if (version != kGpuVerbsVersion)
        fail(verb,
             fmt::format("{} speaks version {} of what the command asks of it, expected {}\nhint: build both anew",
                         path.string(), version, kGpuVerbsVersion));
    return *exported<GpuVerbsFunction>(verb, library, path, kGpuVerbsSymbol)();
}

}  // namespace stowage::cli
