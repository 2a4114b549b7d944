# Compiles through ccache where it is installed; -DCMAKE_CXX_COMPILER_LAUNCHER= turns it off.
find_program(STOWAGE_CCACHE ccache)
mark_as_advanced(STOWAGE_CCACHE)
foreach(language CXX CUDA)
  if(STOWAGE_CCACHE AND NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER ${STOWAGE_CCACHE})
  endif()
endforeach()
