# The Python package in the build folder, as an installation has it: add PROJECT_BINARY_DIR/python to PYTHONPATH. PyTorch
# finds the backend by entry points, so there is metadata too.
set(folder ${PROJECT_BINARY_DIR}/python)
file(GLOB_RECURSE modules CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python/retinue
  ${PROJECT_SOURCE_DIR}/python/retinue/*.py ${PROJECT_SOURCE_DIR}/python/retinue/*.pyi
  ${PROJECT_SOURCE_DIR}/python/retinue/py.typed)
foreach(module IN LISTS modules)
  cmake_path(GET module PARENT_PATH package)
  file(MAKE_DIRECTORY ${folder}/retinue/${package})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/retinue/${module} ${folder}/retinue/${module} SYMBOLIC)
endforeach()
set(metadata ${folder}/retinue-${PROJECT_VERSION}.dist-info)
file(WRITE ${metadata}/METADATA "Metadata-Version: 2.1\nName: retinue\nVersion: ${PROJECT_VERSION}\n")
file(READ ${PROJECT_SOURCE_DIR}/pyproject.toml project)
string(REGEX MATCHALL "\\[project\\.entry-points[^[]*" points "${project}")
list(TRANSFORM points REPLACE "\\[project\\.entry-points\\.\"([^\"]*)\"\\]" "[\\1]")
string(REPLACE "\"" "" points "${points}")
string(REPLACE ";" "" points "${points}")
file(WRITE ${metadata}/entry_points.txt "${points}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/pyproject.toml)
