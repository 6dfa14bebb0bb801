# Defaults for Retinue's own tree; a project that embeds Retinue keeps its own.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set_property(CACHE CMAKE_BUILD_TYPE PROPERTY VALUE Release)
endif()
# Line tables, so that stack traces name file and line in release builds too.
if(NOT CMAKE_CXX_FLAGS_RELEASE MATCHES "-g")
  string(APPEND CMAKE_CXX_FLAGS_RELEASE " -g1")
endif()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# ccache where it is installed and works: where it can't write its cache, nothing would compile. It takes units with a
# precompiled header only when it is told that __TIME__ and unused definitions in it do not matter.
find_program(RETINUE_CCACHE ccache)
mark_as_advanced(RETINUE_CCACHE)
if(RETINUE_CCACHE AND (NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_CXX_COMPILER_LAUNCHER STREQUAL "ccache"))
  set(launcher env CCACHE_SLOPPINESS=pch_defines,time_macros ${RETINUE_CCACHE})
  set(tried ${CMAKE_BINARY_DIR}/CMakeFiles/tried_with_ccache)
  string(TIMESTAMP now %s)
  file(WRITE ${tried}.cpp "int tried_at = ${now};\n")  # New to the cache, which it must write.
  execute_process(COMMAND ${launcher} ${CMAKE_CXX_COMPILER} -c ${tried}.cpp -o ${tried}.o
    RESULT_VARIABLE result ERROR_VARIABLE problem OUTPUT_VARIABLE problem)
  if(result EQUAL 0)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  else()
    set(CMAKE_CXX_COMPILER_LAUNCHER "")
    string(STRIP "${problem}" problem)
    message(STATUS "Without ccache, which does not work here: ${problem}")
  endif()
endif()
