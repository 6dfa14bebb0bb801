# The CMake package: find_package(retinue COMPONENTS core torch datasets) gives retinue::core, retinue::torch and
# retinue::datasets, and retinue::mpi with the core. Components of the installation: core, torch, datasets and command.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/retinue)
set(command_folder ${CMAKE_INSTALL_BINDIR})
set(share_folder ${CMAKE_INSTALL_DATADIR})
if(SKBUILD)  # A wheel: the rest is below the Python module, but these go into the environment's own bin and share.
  set(command_folder ${SKBUILD_SCRIPTS_DIR})
  set(share_folder ${SKBUILD_DATA_DIR}/share)
endif()

# Installs libraries, their headers and what makes targets of them.
function(retinue_install_libraries component targets_file)
  install(TARGETS ${ARGN} EXPORT retinue_${component}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT ${component})
  install(EXPORT retinue_${component} NAMESPACE retinue:: FILE ${targets_file}
    DESTINATION ${package_folder} COMPONENT ${component})
endfunction()

# Installs what Debian wants to know of a package: its changes, its licence, and those of what is compiled in, where
# Debian's packages have them.
function(retinue_install_documents component name)
  install(FILES ${PROJECT_BINARY_DIR}/changelog.gz DESTINATION ${share_folder}/doc/${name} COMPONENT ${component})
  install(FILES LICENSE DESTINATION ${share_folder}/doc/${name} RENAME copyright COMPONENT ${component})
  foreach(package IN LISTS ARGN)
    if(EXISTS /usr/share/doc/${package}/copyright)
      install(FILES /usr/share/doc/${package}/copyright
        DESTINATION ${share_folder}/doc/${name} RENAME copyright.${package} COMPONENT ${component})
    endif()
  endforeach()
endfunction()

file(ARCHIVE_CREATE OUTPUT ${PROJECT_BINARY_DIR}/changelog.gz PATHS ${PROJECT_SOURCE_DIR}/CHANGELOG.md FORMAT raw
  COMPRESSION GZip COMPRESSION_LEVEL 9)
retinue_install_libraries(core retinue-core-targets.cmake retinue_core retinue_mpi)
install(FILES cmake/FindRetinueTorch.cmake cmake/FindRetinueCuda.cmake
  DESTINATION ${package_folder} COMPONENT core)
retinue_install_documents(core libretinue-dev libcereal-dev libfmt-dev nlohmann-json3-dev)
if(RETINUE_BUNDLE)
  foreach(header cereal/cereal.hpp fmt/format.h)
    cmake_path(GET header PARENT_PATH package)
    get_target_property(folders ${package}::${package} INTERFACE_INCLUDE_DIRECTORIES)
    find_path(${package}_headers ${header} PATHS ${folders} NO_DEFAULT_PATH NO_CACHE REQUIRED)
    install(DIRECTORY ${${package}_headers}/${package} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/retinue/bundled COMPONENT core)
    # Its licence, where a Debian package of it is installed.
    install(FILES /usr/share/doc/lib${package}-dev/copyright OPTIONAL
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/retinue/bundled/${package} COMPONENT core)
  endforeach()
endif()
# The torch layer is of one minor version of LibTorch. Builds for several can be installed into one prefix.
if(TARGET retinue_torch)
  set(torch_package retinue-torch-${RetinueTorch_MINOR})
  set_target_properties(retinue_torch PROPERTIES ARCHIVE_OUTPUT_NAME retinue_torch-${RetinueTorch_MINOR})
  retinue_install_libraries(torch ${torch_package}-targets.cmake retinue_torch)
  configure_file(cmake/retinue-torch.cmake.in ${PROJECT_BINARY_DIR}/${torch_package}.cmake @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${torch_package}.cmake DESTINATION ${package_folder} COMPONENT torch)
endif()
if(TARGET retinue_datasets)
  set_target_properties(retinue_datasets PROPERTIES ARCHIVE_OUTPUT_NAME retinue_datasets-${RetinueTorch_MINOR})
  retinue_install_libraries(datasets retinue-datasets-${RetinueTorch_MINOR}-targets.cmake retinue_datasets)
endif()
if(TARGET retinue_python)  # The wheel's.
  install(TARGETS retinue_python LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT python EXCLUDE_FROM_ALL)
endif()
if(TARGET retinue_extension)  # The wheel's too, beside the package's modules.
  install(TARGETS retinue_extension LIBRARY DESTINATION . COMPONENT extension EXCLUDE_FROM_ALL)
elseif(SKBUILD)
  message(FATAL_ERROR "the wheel needs Python.h: install python3-dev")
endif()
foreach(prefix IN LISTS RETINUE_TORCH_BUILDS)
  install(DIRECTORY ${prefix}/ DESTINATION . COMPONENT torch)
endforeach()
if(TARGET retinue_command)
  install(TARGETS retinue_command RUNTIME DESTINATION ${command_folder} COMPONENT command)
  retinue_install_documents(command retinue libcereal-dev libcli11-dev libfmt-dev nlohmann-json3-dev)
  if(TARGET retinue_share_files)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/cli/share/ DESTINATION ${share_folder} COMPONENT command)
  endif()
endif()

configure_package_config_file(cmake/retinue-config.cmake.in ${PROJECT_BINARY_DIR}/retinue-config.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/retinue-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/retinue-config.cmake ${PROJECT_BINARY_DIR}/retinue-config-version.cmake
  DESTINATION ${package_folder} COMPONENT core)

if(PROJECT_IS_TOP_LEVEL)
  include(RetinuePackages)
endif()

# Builds all that is installed, and nothing else.
add_custom_target(retinue_installed)
foreach(target retinue_core retinue_torch retinue_datasets retinue_command retinue_share_files)
  if(TARGET ${target})
    add_dependencies(retinue_installed ${target})
  endif()
endforeach()
if(SKBUILD)
  add_dependencies(retinue_installed retinue_extension)
endif()
