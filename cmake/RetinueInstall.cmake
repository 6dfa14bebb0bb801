# The CMake package: find_package(retinue COMPONENTS core torch) gives retinue::core and retinue::torch, and
# retinue::mpi with the core.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/retinue)

install(TARGETS retinue_core retinue_mpi EXPORT retinue_core
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT retinue_core NAMESPACE retinue:: FILE retinue-core-targets.cmake DESTINATION ${package_folder})
install(FILES cmake/FindRetinueTorch.cmake cmake/FindRetinueCuda.cmake DESTINATION ${package_folder})
if(TARGET retinue_torch)
  install(TARGETS retinue_torch EXPORT retinue_torch
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT retinue_torch NAMESPACE retinue:: FILE retinue-torch-targets.cmake DESTINATION ${package_folder})
endif()
if(TARGET retinue_command)
  install(TARGETS retinue_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(cmake/retinue-config.cmake.in ${PROJECT_BINARY_DIR}/retinue-config.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/retinue-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/retinue-config.cmake ${PROJECT_BINARY_DIR}/retinue-config-version.cmake
  DESTINATION ${package_folder})
