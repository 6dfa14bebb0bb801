include_guard(GLOBAL)

# Each tests/refused/*.cpp becomes a test refused.<name>: what its lines call must not compile, and say why. Only the
# syntax is looked at, with what the core's tests see.
function(retinue_refused_tests)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/refused/*.cpp)
  set(directories $<TARGET_PROPERTY:retinue_test_support,INCLUDE_DIRECTORIES>)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    add_test(NAME refused.${name}
      COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/check_refused ${source} ${CMAKE_CXX_COMPILER}
        -std=c++20 "$<$<BOOL:${directories}>:-I$<JOIN:${directories},;-I>>"
      COMMAND_EXPAND_LISTS)
    set_tests_properties(refused.${name} PROPERTIES LABELS quick TIMEOUT 120)
  endforeach()
endfunction()
