# What all of Retinue's own targets have in common.
include_guard(GLOBAL)

# Warnings for a target of this project. The preset ci makes them errors; another compiler's new warning stops no build.
function(retinue_compile_rules target)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  # gcc collects garbage each time its heap has doubled, from 128 MiB on. That costs a tenth of a unit's time, and a third
  # of the precompiled header's. With this it begins at 1 GiB. ccache looks inside precompiled headers only with
  # -fpch-preprocess.
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576> $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  if(NOT PROJECT_IS_TOP_LEVEL)
    set_target_properties(${target} PROPERTIES COMPILE_WARNING_AS_ERROR OFF)
    target_compile_options(${target} PRIVATE -Wno-error)  # That project's -Werror is for its own sources.
  endif()
endfunction()

# One module of the core: the object library retinue_<module> of all sources below src/<module>/.
function(retinue_module module)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${module}/*.cpp)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(FILTER sources EXCLUDE REGEX "_avx[0-9]+\\.cpp$")
  endif()
  if(NOT RETINUE_COMPILES_FMT)
    list(FILTER sources EXCLUDE REGEX "/fmt_library\\.cpp$")
  endif()
  add_library(retinue_${module} OBJECT ${sources})
  retinue_compile_rules(retinue_${module})
  target_include_directories(retinue_${module} PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR}/src)
  # No FMA contraction: a reduction has the same bits on every machine and by every path.
  target_compile_options(retinue_${module} PRIVATE -ffp-contract=off)
  target_link_libraries(retinue_${module} PUBLIC retinue_fmt Threads::Threads)
  retinue_kernel_flags(${sources})
  retinue_unity_by_folder(retinue_${module})
  if(module STREQUAL base)
    target_precompile_headers(retinue_base PRIVATE <fmt/format.h> <algorithm> <atomic> <chrono> <functional> <map>
      <memory> <optional> <span> <string> <utility> <vector>)
  else()
    target_precompile_headers(retinue_${module} REUSE_FROM retinue_base)
  endif()
endfunction()

# With RETINUE_UNITY_BUILD the sources of a folder of the libraries are compiled as one unit. Most of the time goes into
# headers, which are then read once. Names in unnamed namespaces must therefore differ within a folder. Sources that tests
# include, to have crash points in them, stay objects of their own: the linker then takes the test's in their place.
function(retinue_unity_by_folder target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${RETINUE_UNITY_BUILD} UNITY_BUILD_MODE GROUP)
  if(RETINUE_BUILD_TESTS)
    retinue_sources_in_tests(included)
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(GET folder FILENAME folder)
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${folder})
    if(source IN_LIST included)
      set_property(SOURCE ${source} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()

# The sources of src/ that tests include.
function(retinue_sources_in_tests result)
  get_property(found GLOBAL PROPERTY RETINUE_SOURCES_IN_TESTS)
  if(NOT found)
    file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*/*.cpp ${PROJECT_SOURCE_DIR}/tests/*/*.h)
    foreach(test IN LISTS tests)
      file(STRINGS ${test} includes REGEX "^#include \"[a-z0-9_/]+\\.cpp\"")
      list(TRANSFORM includes REPLACE "^#include \"([^\"]+)\".*" "${PROJECT_SOURCE_DIR}/src/\\1")
      list(APPEND found ${includes})
    endforeach()
    set_property(GLOBAL PROPERTY RETINUE_SOURCES_IN_TESTS ${found})
  endif()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# Kernels are compiled once for each instruction set and chosen at run time.
function(retinue_kernel_flags)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    return()
  endif()
  foreach(source IN LISTS ARGN)
    if(source MATCHES "_avx512\\.cpp$")
      set(flags -mavx512f -mavx512bw -mavx512vl -mavx512dq -mf16c -mfma)
      # gcc 12 warns inside its own intrinsics.
      if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        list(APPEND flags -Wno-maybe-uninitialized -Wno-uninitialized)
      endif()
    elseif(source MATCHES "_avx2\\.cpp$")
      set(flags -mavx2 -mfma -mf16c)
    else()
      continue()
    endif()
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      list(APPEND flags -Wno-unknown-pragmas)  # GCC target.
    endif()
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${flags})
    set_property(SOURCE ${source} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
  endforeach()
endfunction()

# Whether one of the sources has a line that begins as the regular expression says.
function(retinue_has_line result beginning)
  set(${result} OFF PARENT_SCOPE)
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} hits REGEX "^(${beginning})" LIMIT_COUNT 1)
    if(hits)
      set(${result} ON PARENT_SCOPE)
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  endforeach()
endfunction()

# Whether one of the sources includes a header whose name begins as the regular expression says.
macro(retinue_includes result beginning)
  retinue_has_line(${result} "#include [<\"](${beginning})" ${ARGN})
endmacro()

# LibTorch's, or Retinue's headers that include them.
macro(retinue_needs_torch result)
  retinue_includes(${result} "(torch|ATen|c10|retinue/torch|retinue/datasets)/" ${ARGN})
endmacro()

# Retinue's headers of data sets.
macro(retinue_needs_datasets result)
  retinue_includes(${result} "retinue/datasets(/|\\.h)" ${ARGN})
endmacro()

# An MPI's, or Retinue's header for it.
macro(retinue_needs_mpi result)
  retinue_includes(${result} "mpi\\.h|retinue/mpi/" ${ARGN})
endmacro()

# gcc takes a precompiled header only for units that are compiled as it was: libraries and programs are both -fPIC.
function(retinue_pic target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()

# Lets those sources of a target that see LibTorch use a precompiled header of it: parsing LibTorch takes 14-30 s a unit.
function(retinue_torch_rules target)
  retinue_pic(${target})
  retinue_includes(all_of_torch "torch/torch\\.h" ${ARGN})
  if(all_of_torch AND TARGET retinue_torch_programs)
    target_link_libraries(${target} PRIVATE retinue_torch_programs)
    target_precompile_headers(${target} REUSE_FROM retinue_torch_programs)
  else()
    target_precompile_headers(${target} REUSE_FROM retinue_torch)
  endif()
  foreach(source IN LISTS ARGN)
    cmake_path(REPLACE_EXTENSION source h OUTPUT_VARIABLE header)  # Its own header may include LibTorch for it.
    if(NOT EXISTS ${header})
      set(header "")
    endif()
    retinue_needs_torch(torch ${source} ${header})
    if(NOT torch)
      set_property(SOURCE ${source} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# For tests and examples that see LibTorch, which does their work: optimisation would be a third of their compile time.
function(retinue_short_torch_build target scope)
  target_compile_options(${target} ${scope} $<$<CONFIG:Release>:-O1>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} ${scope} -Wno-maybe-uninitialized)  # gcc 12 at -O1, in LibTorch's headers.
  endif()
endfunction()

# Links the core to a target, or the torch layer and MPI where a source needs them.
function(retinue_link target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  retinue_needs_torch(torch ${arg_SOURCES})
  retinue_needs_mpi(mpi ${arg_SOURCES})
  retinue_compile_rules(${target})
  target_link_libraries(${target} PRIVATE ${arg_LIBRARIES} retinue::core)
  if(mpi)
    target_link_libraries(${target} PRIVATE retinue::mpi)
  endif()
  retinue_needs_datasets(datasets ${arg_SOURCES})
  if(datasets)
    target_link_libraries(${target} PRIVATE retinue::datasets)
  endif()
  if(torch)
    target_link_libraries(${target} PRIVATE retinue::torch)
    retinue_torch_rules(${target} ${arg_SOURCES})
  endif()
endfunction()

# An executable of this project. A program that needs what this build is without makes no target.
function(retinue_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  retinue_needs_torch(torch ${arg_SOURCES})
  retinue_needs_mpi(mpi ${arg_SOURCES})
  retinue_needs_datasets(datasets ${arg_SOURCES})
  if((torch AND NOT TARGET retinue_torch) OR (mpi AND NOT RETINUE_HAS_MPI) OR (datasets AND NOT TARGET retinue_datasets))
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  retinue_link(${name} SOURCES ${arg_SOURCES} LIBRARIES ${arg_LIBRARIES})
endfunction()
