// The cuDNN frontend brings engines of its own for other operations, which compile kernels with NVRTC. Attention uses
// none of them, and the executor should not ask every machine for NVRTC because of that: here its functions answer that
// they cannot (NVRTC_ERROR_INTERNAL_ERROR), which makes the frontend pass over those engines. Hidden, so that NVRTC
// itself, which cuDNN opens by name, is never mistaken for this.

#include <cstddef>

#define STOWAGE_HIDDEN __attribute__((visibility("hidden")))

namespace {
constexpr int kInternalError = 11;
}

// NOLINTBEGIN(readability-identifier-naming): the names are NVRTC's
extern "C" {

STOWAGE_HIDDEN int nvrtcCreateProgram(void** /*program*/, const char* /*source*/, const char* /*name*/,
                                      int /*header_count*/, const char* const* /*headers*/,
                                      const char* const* /*include_names*/) {
    return kInternalError;
}
STOWAGE_HIDDEN int nvrtcDestroyProgram(void** /*program*/) { return kInternalError; }
STOWAGE_HIDDEN int nvrtcCompileProgram(void* /*program*/, int /*option_count*/, const char* const* /*options*/) {
    return kInternalError;
}
STOWAGE_HIDDEN int nvrtcGetCUBINSize(void* /*program*/, std::size_t* /*size*/) { return kInternalError; }
STOWAGE_HIDDEN int nvrtcGetCUBIN(void* /*program*/, char* /*cubin*/) { return kInternalError; }
STOWAGE_HIDDEN int nvrtcGetProgramLogSize(void* /*program*/, std::size_t* /*size*/) { return kInternalError; }
STOWAGE_HIDDEN int nvrtcGetProgramLog(void* /*program*/, char* /*log*/) { return kInternalError; }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
