# `cmake --install` exports the libraries as stowage::<folder>_<leaf>, headers under include/stowage; a consumer writes
# find_package(stowage) and includes "planner/program/..." as the tree does. Tested by tests/install.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# stowage_install_library(<folder>_<leaf>): called by stowage_library.
function(stowage_install_library name)
  set_target_properties(stowage_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS stowage_${name} EXPORT stowage
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stowage)
endfunction()

# Called once, after the last library.
function(stowage_install_export)
  set(destination ${CMAKE_INSTALL_LIBDIR}/cmake/stowage)
  install(TARGETS stowage_options EXPORT stowage)
  install(EXPORT stowage NAMESPACE stowage:: FILE stowageTargets.cmake DESTINATION ${destination})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/stowageConfig.cmake.in
    ${PROJECT_BINARY_DIR}/stowageConfig.cmake INSTALL_DESTINATION ${destination})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/stowageConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/stowageConfig.cmake ${PROJECT_BINARY_DIR}/stowageConfigVersion.cmake
    DESTINATION ${destination})
  if(TARGET stowage)
    install(TARGETS stowage RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endfunction()
