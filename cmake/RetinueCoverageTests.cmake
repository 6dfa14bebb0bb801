# Builds tests/coverage for coverage, by this build's gcc and by a clang, against the package that consumer.install
# installs, and runs it. What is missing here is said by a test that is skipped.
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  return()
endif()

# NAME n COMPILER c FLAGS f... CHECK kind tools...
function(retinue_coverage_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;COMPILER" "FLAGS;CHECK")
  set(name coverage.${arg_NAME})
  if("${arg_COMPILER} ${arg_CHECK}" MATCHES "RETINUE_([A-Z0-9_]+)-NOTFOUND")
    string(REPLACE _ - missing ${CMAKE_MATCH_1})
    string(TOLOWER ${missing} missing)
    retinue_skipped_test(${name} ${missing})
    return()
  endif()
  set(folder ${PROJECT_BINARY_DIR}/coverage/${arg_NAME})
  string(REPLACE ";" "$<SEMICOLON>" flags "${arg_FLAGS}")
  add_test(NAME ${name}
    COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${PROJECT_SOURCE_DIR}/tests/coverage ${folder}
      --build-generator ${CMAKE_GENERATOR}
      --build-options -DCMAKE_CXX_COMPILER=${arg_COMPILER} "-DCOVERAGE_FLAGS=${flags}"
        -DCMAKE_PREFIX_PATH=${PROJECT_BINARY_DIR}/consumer/prefix
      --test-command ${PROJECT_SOURCE_DIR}/tests/coverage/check ${folder}/covered ${arg_CHECK})
  set_tests_properties(${name} PROPERTIES
    LABELS quick TIMEOUT 300 FIXTURES_REQUIRED installed_package PASS_REGULAR_EXPRESSION "coverage: ok")
endfunction()

# A clang with its tools, and the library that what it builds for profiles needs.
set(clang_tools "")
set(clang ${RETINUE_CLANG})
if(RETINUE_CLANG)
  file(REAL_PATH ${RETINUE_CLANG} path)
  cmake_path(GET path PARENT_PATH clang_tools)
  execute_process(COMMAND ${RETINUE_CLANG} -print-resource-dir
    OUTPUT_VARIABLE resources OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${RETINUE_CLANG} -dumpversion OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(GLOB profile_runtime ${resources}/lib/*/libclang_rt.profile*.a)
  if(version VERSION_LESS 16)
    set(clang RETINUE_CLANG_16-NOTFOUND)
  elseif(NOT profile_runtime)
    set(clang RETINUE_CLANG_PROFILE_RUNTIME-NOTFOUND)
  endif()
endif()
# Those of another version don't read what it writes.
find_program(RETINUE_LLVM_COV NAMES llvm-cov PATHS ${clang_tools} NO_DEFAULT_PATH)
find_program(RETINUE_LLVM_PROFDATA NAMES llvm-profdata PATHS ${clang_tools} NO_DEFAULT_PATH)
mark_as_advanced(RETINUE_LLVM_COV RETINUE_LLVM_PROFDATA)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  string(REGEX MATCH "^[0-9]+" version ${CMAKE_CXX_COMPILER_VERSION})
  find_program(RETINUE_GCOV NAMES gcov-${version} gcov)
  mark_as_advanced(RETINUE_GCOV)
  retinue_coverage_test(NAME gcc COMPILER ${CMAKE_CXX_COMPILER} FLAGS --coverage CHECK gcov ${RETINUE_GCOV})
endif()
retinue_coverage_test(NAME clang COMPILER ${clang} FLAGS --coverage CHECK gcov ${RETINUE_LLVM_COV} gcov)
retinue_coverage_test(NAME clang_profile COMPILER ${clang}
  FLAGS -fprofile-instr-generate -fcoverage-mapping CHECK llvm ${RETINUE_LLVM_PROFDATA} ${RETINUE_LLVM_COV})
