# Debian packages of this build, by cpack: `retinue`, the command, and `libretinue-dev`, the core. The torch layer is in
# neither: Debian has no LibTorch of a version that it needs.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME retinue)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # Each package has its own.
set(CPACK_PACKAGE_VENDOR "The Retinue authors")
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The Retinue authors")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_SOURCE_DIR}/dist)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_COMPONENTS_ALL command core)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)

set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME retinue)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS libdw1)  # Loaded on demand: files and lines in stacks.
set(CPACK_COMPONENT_COMMAND_DESCRIPTION "start and supervise programs of several processes
The command retinue starts the ranks of a program as torchrun does, and shows,
stops and examines running jobs.")

set(CPACK_DEBIAN_CORE_PACKAGE_NAME libretinue-dev)
set(CPACK_DEBIAN_CORE_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_CORE_PACKAGE_DEPENDS "libcereal-dev, libfmt-dev, libssl-dev")
set(CPACK_DEBIAN_CORE_PACKAGE_RECOMMENDS libdw1)
set(CPACK_COMPONENT_CORE_DESCRIPTION "multi-process runtime for C++20 (development files)
Starts ranks, gives them memory that they share without copies, synchronises
them, and reports which rank failed, where and why.")

include(CPack)
