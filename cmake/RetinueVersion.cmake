# The version's single source is the first entry of CHANGELOG.md, a line like `## 0.1.0`.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../CHANGELOG.md _retinue_entries REGEX "^## [0-9]+\\.[0-9]+\\.[0-9]+" LIMIT_COUNT 1)
if(NOT _retinue_entries MATCHES "^## ([0-9]+\\.[0-9]+\\.[0-9]+)")
  message(FATAL_ERROR "CHANGELOG.md has no entry of the form '## 1.2.3': it is where Retinue's version comes from.")
endif()
set(RETINUE_VERSION ${CMAKE_MATCH_1})
unset(_retinue_entries)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../CHANGELOG.md)
