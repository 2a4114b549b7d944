# Finds the CUDA toolkit as STOWAGE_ENABLE_CUDA asks and sets STOWAGE_HAVE_CUDA.
#
#   AUTO  with the toolkit if there is one, and if the tree has code that needs it; never an error, never slow
#   ON    the toolkit and the cuDNN frontend headers are required
#   OFF   nothing of CUDA is looked for
#
# CMake 3.25 does not know C++20 for nvcc, so targets with .cu files link stowage_cuda_options instead of asking for
# CUDA_STANDARD 20.
set(STOWAGE_HAVE_CUDA OFF)
if(NOT STOWAGE_ENABLE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "STOWAGE_ENABLE_CUDA is '${STOWAGE_ENABLE_CUDA}'; it is AUTO, ON or OFF")
endif()

file(GLOB STOWAGE_CUDA_FOLDERS CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/executor/*/CMakeLists.txt ${PROJECT_SOURCE_DIR}/profiler/*/CMakeLists.txt)

if(STOWAGE_ENABLE_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: off, as asked")
elseif(STOWAGE_ENABLE_CUDA STREQUAL "AUTO" AND NOT STOWAGE_CUDA_FOLDERS)
  message(STATUS "CUDA: no code here needs it yet, not looked for")
else()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # A100; H100, H200 and, through PTX, what came later
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit)
  endif()
  if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND)
    set(STOWAGE_HAVE_CUDA ON)
    message(STATUS "CUDA: toolkit ${CUDAToolkit_VERSION}, ${CMAKE_CUDA_COMPILER}")
    add_library(stowage_cuda_options INTERFACE)
    target_compile_options(stowage_cuda_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
    include(StowageCudnnFrontend)
  elseif(STOWAGE_ENABLE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "STOWAGE_ENABLE_CUDA is ON but no CUDA toolkit was found; install it, put nvcc on PATH, or use AUTO or OFF")
  else()
    message(STATUS "CUDA: no toolkit found, building without it")
  endif()
endif()
