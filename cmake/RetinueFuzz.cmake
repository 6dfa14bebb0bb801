# Decoders under libFuzzer: each function of tests/fuzz/targets.h is a program bin/fuzz_<name> in the preset `fuzz`, whose
# compiler is clang. In all builds they are a library, with which a test runs the kept corpora.
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_targets.cpp)
add_library(retinue_fuzz_targets STATIC EXCLUDE_FROM_ALL ${fuzz_sources} ${PROJECT_SOURCE_DIR}/tests/fuzz/harness.cpp)
retinue_test_rules(retinue_fuzz_targets)
if(NOT RETINUE_FUZZ)
  target_link_libraries(retinue_fuzz_targets PUBLIC retinue::core)
  return()
endif()

if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "RETINUE_FUZZ needs libFuzzer: use clang (cmake --preset fuzz, or make fuzz)")
endif()
# clang takes a function with another target attribute into its caller, which then lacks the instruction.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/ipc/message_ring.cpp TARGET_DIRECTORY retinue_ipc
    APPEND PROPERTY COMPILE_OPTIONS -mcx16)
endif()
# Not the whole core: what decodes nothing need not be instrumented.
set(rooms retinue_base retinue_os retinue_ipc retinue_process)
target_include_directories(retinue_fuzz_targets PUBLIC ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(retinue_fuzz_targets PUBLIC fmt::fmt cereal::cereal)
file(STRINGS ${PROJECT_SOURCE_DIR}/tests/fuzz/targets.h names REGEX "^void [a-z_]+\\(Bytes input\\)")
list(TRANSFORM names REPLACE "^void ([a-z_]+).*" "\\1")
add_custom_target(fuzz)
foreach(name IN LISTS names)
  add_executable(fuzz_${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/libfuzzer.cpp)
  retinue_test_rules(fuzz_${name})
  target_compile_definitions(fuzz_${name} PRIVATE RETINUE_FUZZ_TARGET=${name})
  target_link_libraries(fuzz_${name} PRIVATE retinue_fuzz_targets ${rooms} ${CMAKE_DL_LIBS})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzz fuzz_${name})
endforeach()
