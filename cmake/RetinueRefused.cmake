include_guard(GLOBAL)

# Each tests/refused/*.cpp becomes a test refused.<name>: what its lines call must not compile, and say why. Only the
# syntax is looked at, with what the core's tests see; those in tests/refused/torch see the torch layer.
function(retinue_refused_tests)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/refused/*.cpp)
  set(core_directories $<TARGET_PROPERTY:retinue_test_support,INCLUDE_DIRECTORIES>)
  if(TARGET retinue_torch)
    file(GLOB torch_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/refused/torch/*.cpp)
    set(torch_directories $<TARGET_PROPERTY:retinue_torch,INCLUDE_DIRECTORIES>)
  endif()
  # Else what the compiler repeats of the source would pass for its own words.
  set(no_source -fno-diagnostics-show-caret)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set(no_source -fno-caret-diagnostics)
  endif()
  foreach(source IN LISTS sources torch_sources)
    set(directories ${core_directories})
    if(source IN_LIST torch_sources)
      set(directories ${torch_directories})
    endif()
    cmake_path(GET source STEM name)
    add_test(NAME refused.${name}
      COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/check_refused ${source} ${CMAKE_CXX_COMPILER}
        -std=c++20 ${no_source} "$<$<BOOL:${directories}>:-I$<JOIN:${directories},;-I>>"
      COMMAND_EXPAND_LISTS)
    set_tests_properties(refused.${name} PROPERTIES LABELS quick TIMEOUT 120)
  endforeach()
endfunction()
