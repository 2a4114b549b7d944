# Targets of the tree: one library a leaf folder, `stowage_<folder>_<leaf>` with the alias `stowage::<folder>_<leaf>`.

add_library(stowage_options INTERFACE)
target_compile_features(stowage_options INTERFACE cxx_std_20)
target_compile_options(stowage_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion;-Wnon-virtual-dtor>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${STOWAGE_WERROR}>>:-Werror>)
# GCC 12 sees overlaps in "literal" + std::string that are not there (its bug 105651, mended in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(stowage_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(STOWAGE_SANITIZE)
  target_compile_options(stowage_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(stowage_options INTERFACE -fsanitize=address,undefined)
endif()

# stowage_library(<folder>_<leaf> SOURCES a.cpp ... LINK stowage::x ... HEADERS a.hpp ...)
function(stowage_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;LINK" ${ARGN})
  add_library(stowage_${name} STATIC ${ARG_SOURCES})
  add_library(stowage::${name} ALIAS stowage_${name})
  target_sources(stowage_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_link_libraries(stowage_${name} PUBLIC ${ARG_LINK} PRIVATE stowage_options)
  target_compile_features(stowage_${name} PUBLIC cxx_std_20)
  set_target_properties(stowage_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  stowage_install_library(${name})
endfunction()

# stowage_test(<name> LABEL cpu|slow|gpu|fuzz SOURCES ... LINK ...): one label a binary.
function(stowage_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE STOWAGE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${ARG_LINK} stowage_options GTest::gtest_main)
  # Tests are many and run once: what they are compiled with counts more than how fast they are.
  target_compile_options(${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  if(ARG_LABEL STREQUAL "gpu")
    set(lock RESOURCE_LOCK gpu)  # ctest -j runs them one after the other
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${ARG_LABEL} ${lock})
endfunction()

# stowage_cuda_library(<folder>_<leaf> SOURCES a.cpp b.cu LINK ... HEADERS ...): needs the CUDA toolkit; part of
# libstowage_gpu.so, not installed by itself. Call it only where STOWAGE_HAVE_CUDA is set.
function(stowage_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;LINK" ${ARGN})
  add_library(stowage_${name} STATIC ${ARG_SOURCES})
  add_library(stowage::${name} ALIAS stowage_${name})
  target_sources(stowage_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_link_libraries(stowage_${name} PUBLIC ${ARG_LINK} CUDA::cudart_static PRIVATE stowage_options stowage_cuda_options)
  target_compile_features(stowage_${name} PUBLIC cxx_std_20)
  set_target_properties(stowage_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()
