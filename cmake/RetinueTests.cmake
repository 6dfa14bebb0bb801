include_guard(GLOBAL)

# retinue_test(NAME n SOURCES ... MODULE m [LABELS quick|full] [TIMEOUT seconds] [OWN_MAIN])
# One executable, one CTest test for each of its cases. TIMEOUT is a case's; default 120 s, for `full` 1800 s. Tests
# measure no path table and keep none in the user's home.
function(retinue_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "OWN_MAIN" "NAME;MODULE;LABELS;TIMEOUT" "SOURCES")
  if(NOT arg_LABELS)
    set(arg_LABELS quick)
  endif()
  if(NOT arg_TIMEOUT AND arg_LABELS STREQUAL "full")
    set(arg_TIMEOUT 1800)
  elseif(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set(main GTest::gtest)
  if(NOT arg_OWN_MAIN)
    set(main GTest::gtest_main)
  endif()
  set(support "")
  if(TARGET retinue_test_support)
    set(support retinue_test_support)
  endif()
  # The command's parts are tested one by one too.
  if(arg_MODULE STREQUAL cli AND TARGET retinue_cli)
    list(APPEND support retinue_cli)
  endif()
  if(arg_MODULE STREQUAL fuzz)
    retinue_needs_torch(torch ${arg_SOURCES})
    list(APPEND support $<IF:$<BOOL:${torch}>,retinue_fuzz_tensor,retinue_fuzz_targets>)
  endif()
  retinue_executable(${arg_NAME} SOURCES ${arg_SOURCES} LIBRARIES ${main} ${support})
  if(NOT TARGET ${arg_NAME})
    return()
  endif()
  retinue_test_rules(${arg_NAME})
  retinue_needs_torch(torch ${arg_SOURCES})
  if(NOT torch AND TARGET retinue_test_support)
    retinue_short_build(${arg_NAME})
    target_precompile_headers(${arg_NAME} REUSE_FROM retinue_test_support)
  endif()
  add_dependencies(${arg_NAME} tests_${arg_MODULE}_programs)
  gtest_discover_tests(${arg_NAME}
    TEST_PREFIX ${arg_MODULE}. DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT} ENVIRONMENT RETINUE_PATH_TABLE=default)
endfunction()

# What all that belongs to tests sees: private headers, tests/, and where programs and sources lie.
function(retinue_test_rules target)
  retinue_compile_rules(${target})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE
    RETINUE_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
    RETINUE_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    RETINUE_MPIEXEC="${MPIEXEC_EXECUTABLE}"
    RETINUE_TORCH_PYTHON="${RetinueTorch_PYTHON}"
    $<$<BOOL:${RETINUE_HAS_CUDA}>:RETINUE_CUDA>)
endfunction()

# Of hundreds of tests: what they test is the library, which is optimised, and of their own compile time half is gtest's.
# With a sanitizer optimisation takes half of the rest.
function(retinue_short_build target)
  # gcc takes a precompiled header only for units that are compiled as it was, and ccache only with -fpch-preprocess.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC $<$<CONFIG:Release>:-O1> $<$<CONFIG:None>:-O0>
    $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

# All tests and helper programs of tests/<module>.
function(retinue_module_tests module)
  file(GLOB programs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${module}/*_program.cpp)
  add_custom_target(tests_${module}_programs)
  foreach(source IN LISTS programs)
    cmake_path(GET source STEM name)
    retinue_executable(${name} SOURCES ${source})
    if(TARGET ${name})
      retinue_test_rules(${name})
      add_dependencies(tests_${module}_programs ${name})
    endif()
  endforeach()
  if(module STREQUAL bench)
    if(NOT TARGET retinue-bench)
      return()
    endif()
    add_dependencies(tests_${module}_programs retinue-bench)
  endif()
  foreach(needed retinue_command retinue_examples tests_launch_programs)
    if(TARGET ${needed} AND module MATCHES "^(cli|examples|fault)$")
      add_dependencies(tests_${module}_programs ${needed})
    endif()
  endforeach()

  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${module}/*_test.cpp)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    string(REGEX REPLACE "_test$" "" example ${name})
    if(module STREQUAL examples AND NOT TARGET ${example})
      continue()  # Its program needs LibTorch, or MPI.
    endif()
    set(label quick)
    set(own_main "")
    if(name MATCHES "_full(_main)?_test$")
      set(label full)
    endif()
    if(name MATCHES "_main(_full)?_test$")
      set(own_main OWN_MAIN)
    endif()
    string(REGEX REPLACE "_test$" "" stem ${name})
    retinue_test(NAME tests_${module}_${stem} SOURCES ${source} MODULE ${module} LABELS ${label} ${own_main})
  endforeach()
endfunction()
