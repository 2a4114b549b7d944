# The cuDNN frontend is headers only and in no distribution: taken from PyPI into the build folder, unless found.
# Makes stowage_cudnn_frontend (an interface target) and sets STOWAGE_HAVE_CUDNN_FRONTEND.
set(STOWAGE_CUDNN_FRONTEND_VERSION 1.32.0 CACHE STRING "Version of nvidia-cudnn-frontend to take from PyPI")
set(STOWAGE_HAVE_CUDNN_FRONTEND OFF)

set(cudnn_frontend_folder ${PROJECT_BINARY_DIR}/cudnn-frontend-${STOWAGE_CUDNN_FRONTEND_VERSION})
find_path(STOWAGE_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${cudnn_frontend_folder}/include ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(STOWAGE_CUDNN_FRONTEND_INCLUDE)

if(NOT STOWAGE_CUDNN_FRONTEND_INCLUDE)
  message(STATUS "cuDNN frontend: not found, taking nvidia-cudnn-frontend ${STOWAGE_CUDNN_FRONTEND_VERSION} from PyPI with pip")
  find_program(STOWAGE_PYTHON3 python3)
  mark_as_advanced(STOWAGE_PYTHON3)
  set(outcome "python3 not found")
  if(STOWAGE_PYTHON3)
    execute_process(
      COMMAND ${STOWAGE_PYTHON3} -m pip download --quiet --no-deps --only-binary=:all: --dest ${cudnn_frontend_folder}
        nvidia-cudnn-frontend==${STOWAGE_CUDNN_FRONTEND_VERSION}
      RESULT_VARIABLE outcome ERROR_VARIABLE pip_words OUTPUT_QUIET)
  endif()
  if(outcome EQUAL 0)
    file(GLOB wheel ${cudnn_frontend_folder}/nvidia_cudnn_frontend-*.whl)
    file(ARCHIVE_EXTRACT INPUT ${wheel} DESTINATION ${cudnn_frontend_folder} PATTERNS include/*)
    file(REMOVE ${wheel})
    find_path(STOWAGE_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${cudnn_frontend_folder}/include NO_DEFAULT_PATH)
  endif()
endif()

if(STOWAGE_CUDNN_FRONTEND_INCLUDE)
  set(STOWAGE_HAVE_CUDNN_FRONTEND ON)
  message(STATUS "cuDNN frontend: ${STOWAGE_CUDNN_FRONTEND_INCLUDE}")
  add_library(stowage_cudnn_frontend INTERFACE)
  target_include_directories(stowage_cudnn_frontend SYSTEM INTERFACE ${STOWAGE_CUDNN_FRONTEND_INCLUDE})
else()
  set(cudnn_frontend_words "cuDNN frontend: none (pip: ${outcome} ${pip_words}); set STOWAGE_CUDNN_FRONTEND_INCLUDE to its headers")
  if(STOWAGE_ENABLE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "${cudnn_frontend_words}, or use AUTO or OFF")
  endif()
  message(STATUS "${cudnn_frontend_words}; going on without it")
endif()
