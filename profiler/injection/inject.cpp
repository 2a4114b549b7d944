// libstowage_inject.so: what the driver loads into a process whose CUDA_INJECTION64_PATH names it, and calls once,
// inside its first call, before anything else of CUDA is there.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>

#include "profiler/injection/injection.hpp"

namespace {

using stowage::profiler::Injection;

/// Never destroyed: threads of CUPTI and callbacks may come to the very end.
Injection* the_injection = nullptr;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): one a process

void finish() {
    if (the_injection != nullptr) the_injection->finish();
}

void inject() {
    const auto settings = stowage::profiler::settings_of(stowage::profiler::current_environment());
    if (!settings || the_injection != nullptr) return;
    the_injection = new Injection(*settings);  // NOLINT(cppcoreguidelines-owning-memory): see above
    // Registered while the driver initialises: run before what the driver and CUPTI have registered until then.
    if (std::atexit(finish) != 0) std::fputs("stowage: the end of this process cannot be noticed\n", stderr);
}

}  // namespace

/// Result: 1, as the driver expects; it goes on in any case.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
    try {
        inject();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "stowage: not recorded: %s\n", error.what());
    }
    return 1;
}
