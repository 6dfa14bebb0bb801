# Checks of the source tree, run by `make lint`: the CTest tests lint.*, label lint.
function(retinue_lint name)
  add_test(NAME lint.${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(lint.${name} PROPERTIES LABELS lint TIMEOUT 900)
endfunction()

find_program(RETINUE_CLANG_FORMAT NAMES clang-format-14)
find_program(RETINUE_CLANG_TIDY NAMES clang-tidy-16)
mark_as_advanced(RETINUE_CLANG_FORMAT RETINUE_CLANG_TIDY)

# Pinned, since other versions format differently and clang-tidy 14 has no std::source_location. Missing, the check fails
# and says so.
retinue_lint(format scripts/check_format ${RETINUE_CLANG_FORMAT})
retinue_lint(tidy scripts/check_tidy ${PROJECT_BINARY_DIR} ${RETINUE_CLANG_TIDY})
set_tests_properties(lint.tidy PROPERTIES PROCESSORS 2 TIMEOUT 1800)
foreach(check layers sizes snippets paths performance)
  retinue_lint(${check} scripts/check_${check})
endforeach()

# Skipped without a cross compiler, which is no part of what bootstrap installs: it is 200 MB on disk, and an ARM machine
# has none by that name but its own.
find_program(RETINUE_AARCH64_COMPILER NAMES aarch64-linux-gnu-g++ aarch64-linux-gnu-g++-12)
mark_as_advanced(RETINUE_AARCH64_COMPILER)
retinue_lint(aarch64 scripts/check_aarch64 ${RETINUE_AARCH64_COMPILER})
set_tests_properties(lint.aarch64 PROPERTIES SKIP_RETURN_CODE 77)

# Public headers compile alone. Those that include LibTorch take 20 s each: make test-full's.
foreach(layer core torch datasets mpi)
  if(TARGET retinue_${layer} AND NOT (layer STREQUAL "mpi" AND NOT RETINUE_HAS_MPI))
    retinue_lint(headers_${layer}
      ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target retinue_${layer}_verify_interface_header_sets)
    set_tests_properties(lint.headers_${layer} PROPERTIES RESOURCE_LOCK build_folder)
    if(layer MATCHES "^(torch|datasets)$")
      set_tests_properties(lint.headers_${layer} PROPERTIES LABELS full TIMEOUT 1800)
    endif()
  endif()
endforeach()
