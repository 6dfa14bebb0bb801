# FindRetinueTorch: LibTorch as an imported target, without the wheel's own TorchConfig.cmake, which insists on a CUDA
# toolkit for CUDA wheels. CPU and CUDA builds of the wheel or of the LibTorch archive both work.
#
# Looked for, in this order:
#   RetinueTorch_ROOT    the folder that holds include/ and lib/ (in a wheel: site-packages/torch)
#   Torch_DIR            as CMake or environment variable: <root>/share/cmake/Torch
#   CMAKE_PREFIX_PATH    as CMake or environment variable
#   RETINUE_TORCH_HINTS  folders that the caller adds: the private virtual environment of scripts/bootstrap
#
# The version: find_package's, as 2.13 for each 2.13.*, or a range of minor versions, as 2.12...2.15. A version above a
# range is taken, and RetinueTorch_IS_NEWER says so; one below it is refused.
#
# RetinueTorch_CPU_ONLY, if ON: programs are linked without LibTorch's CUDA libraries, and use the CPU only. A CUDA build
# then needs none of NVIDIA's libraries but libcudart and libcupti.
#
# Gives:
#   Retinue::LibTorch             imported target
#   RetinueTorch_FOUND, RetinueTorch_VERSION, RetinueTorch_MINOR (as 2.13), RetinueTorch_ROOT_DIR
#   RetinueTorch_REASON_FAILURE_MESSAGE  why not, as one sentence
#   RetinueTorch_PYTHON           the interpreter beside the wheel, empty for an archive
#   RetinueTorch_HAS_CUDA         whether this LibTorch can use CUDA
#   RetinueTorch_IS_NEWER         whether its version is above the range

set(_rt_named ${RetinueTorch_ROOT} $ENV{RetinueTorch_ROOT} ${Torch_DIR} $ENV{Torch_DIR})
set(_rt_prefixes ${CMAKE_PREFIX_PATH})
if(DEFINED ENV{CMAKE_PREFIX_PATH})
  string(REPLACE ":" ";" _rt_environment "$ENV{CMAKE_PREFIX_PATH}")
  list(APPEND _rt_prefixes ${_rt_environment})
endif()
# What torch.utils.cmake_prefix_path and Torch_DIR name lies below the root.
list(TRANSFORM _rt_named REPLACE "/share/cmake(/Torch)?/*$" "")
list(TRANSFORM _rt_prefixes REPLACE "/share/cmake(/Torch)?/*$" "")

# An answer from an earlier run may lie in a folder that is gone, or that is no longer asked for.
unset(RetinueTorch_INCLUDE_DIR CACHE)
set(_rt_asked ${_rt_named})
if(NOT _rt_named)
  set(_rt_named ${_rt_prefixes} ${RETINUE_TORCH_HINTS})
endif()
find_path(RetinueTorch_INCLUDE_DIR torch/csrc/api/include/torch/torch.h
  PATHS ${_rt_named} PATH_SUFFIXES include NO_DEFAULT_PATH)

set(RetinueTorch_VERSION "")
set(RetinueTorch_REASON_FAILURE_MESSAGE "")
if(NOT RetinueTorch_INCLUDE_DIR AND _rt_asked)
  list(GET _rt_asked 0 _rt_asked)
  string(CONCAT RetinueTorch_REASON_FAILURE_MESSAGE
    "no LibTorch in ${_rt_asked}, which RetinueTorch_ROOT or Torch_DIR names: name the full path of a folder with "
    "include/torch and lib, or of share/cmake/Torch in it")
elseif(NOT RetinueTorch_INCLUDE_DIR)
  string(CONCAT RetinueTorch_REASON_FAILURE_MESSAGE
    "no LibTorch found: name one by Torch_DIR, or by CMAKE_PREFIX_PATH (torch.utils.cmake_prefix_path in Python), or run "
    "scripts/bootstrap torch in Retinue's sources")
else()
  cmake_path(GET RetinueTorch_INCLUDE_DIR PARENT_PATH RetinueTorch_ROOT_DIR)
  foreach(_rt_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT RetinueTorch_VERSION AND EXISTS ${RetinueTorch_INCLUDE_DIR}/${_rt_header})
      file(STRINGS ${RetinueTorch_INCLUDE_DIR}/${_rt_header} _rt_lines
        REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
      list(TRANSFORM _rt_lines REPLACE "^[^ ]+ [^ ]+ " "")
      list(JOIN _rt_lines "." RetinueTorch_VERSION)
    endif()
  endforeach()
  foreach(_rt_library torch torch_cpu c10 torch_cuda c10_cuda)
    unset(RetinueTorch_${_rt_library}_LIBRARY CACHE)
    find_library(RetinueTorch_${_rt_library}_LIBRARY ${_rt_library}
      PATHS ${RetinueTorch_ROOT_DIR}/lib ${RetinueTorch_ROOT_DIR}/lib64 NO_DEFAULT_PATH)
    mark_as_advanced(RetinueTorch_${_rt_library}_LIBRARY)
  endforeach()
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" RetinueTorch_MINOR "${RetinueTorch_VERSION}")
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" _rt_wanted "${RetinueTorch_FIND_VERSION}")
  set(_rt_oldest ${_rt_wanted})
  set(_rt_newest ${_rt_wanted})
  if(RetinueTorch_FIND_VERSION_RANGE)
    set(_rt_oldest ${RetinueTorch_FIND_VERSION_MIN})
    set(_rt_newest ${RetinueTorch_FIND_VERSION_MAX})
    set(_rt_wanted "${_rt_oldest} to ${_rt_newest}")
  endif()
  if(_rt_wanted AND (RetinueTorch_MINOR VERSION_LESS _rt_oldest
      OR (RetinueTorch_MINOR VERSION_GREATER _rt_newest AND NOT RetinueTorch_FIND_VERSION_RANGE)))
    string(CONCAT RetinueTorch_REASON_FAILURE_MESSAGE
      "LibTorch in ${RetinueTorch_ROOT_DIR} is version ${RetinueTorch_VERSION}, but ${_rt_wanted} is needed:"
      " name another one by Torch_DIR, or unset it and run scripts/bootstrap")
  elseif(NOT RetinueTorch_torch_cpu_LIBRARY OR NOT RetinueTorch_c10_LIBRARY OR NOT RetinueTorch_torch_LIBRARY)
    set(RetinueTorch_REASON_FAILURE_MESSAGE
      "LibTorch in ${RetinueTorch_ROOT_DIR} is incomplete: libtorch, libtorch_cpu or libc10 is missing in its lib folder")
  endif()
endif()

if(_rt_wanted AND RetinueTorch_MINOR VERSION_GREATER _rt_newest)
  set(RetinueTorch_IS_NEWER ON)
else()
  set(RetinueTorch_IS_NEWER OFF)
endif()
if(RetinueTorch_torch_cuda_LIBRARY AND NOT RetinueTorch_CPU_ONLY)
  set(RetinueTorch_HAS_CUDA ON)
else()
  set(RetinueTorch_HAS_CUDA OFF)
endif()
set(RetinueTorch_PYTHON "")
if(RetinueTorch_ROOT_DIR MATCHES "^(.*)/lib(64)?/python[0-9.]+/(site|dist)-packages/torch$")
  if(EXISTS ${CMAKE_MATCH_1}/bin/python3)
    set(RetinueTorch_PYTHON ${CMAKE_MATCH_1}/bin/python3)
  endif()
endif()

include(FindPackageHandleStandardArgs)
set(_rt_usable "")
if(RetinueTorch_REASON_FAILURE_MESSAGE STREQUAL "")
  set(_rt_usable ${RetinueTorch_ROOT_DIR})
endif()
find_package_handle_standard_args(RetinueTorch
  REQUIRED_VARS _rt_usable
  REASON_FAILURE_MESSAGE "${RetinueTorch_REASON_FAILURE_MESSAGE}" HANDLE_VERSION_RANGE)

# The libraries of this LibTorch, kept even where a linker default (Ubuntu's --as-needed) would drop those whose symbols
# are used only through registration.
function(_rt_add_target)
  set(libraries "")
  set(names torch torch_cpu torch_cuda c10_cuda c10)
  if(RetinueTorch_CPU_ONLY)
    set(names torch_cpu c10)  # libtorch itself is empty, and needs all others.
  endif()
  foreach(name IN LISTS names)
    if(RetinueTorch_${name}_LIBRARY)
      list(APPEND libraries ${RetinueTorch_${name}_LIBRARY})
    endif()
  endforeach()
  # One OpenMP runtime in a process: torch's own, whatever its file is called. Without -fopenmp, at::parallel_for inlined
  # in our units would run serially; so it does where clang compiles, whose code needs another runtime.
  file(GLOB gomp ${RetinueTorch_ROOT_DIR}/lib/libgomp*.so*)
  if(gomp)
    list(GET gomp 0 gomp)
  else()
    set(gomp "$<$<LINK_LANG_AND_ID:CXX,GNU>:-fopenmp>")
  endif()
  add_library(Retinue::LibTorch INTERFACE IMPORTED)
  set_target_properties(Retinue::LibTorch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${RetinueTorch_INCLUDE_DIR};${RetinueTorch_INCLUDE_DIR}/torch/csrc/api/include"
    # The definitions that change c10d's classes; it was built with them.
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;USE_RPC;USE_TENSORPIPE"
    INTERFACE_COMPILE_OPTIONS "$<$<CXX_COMPILER_ID:GNU>:-fopenmp>"
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_LINK_OPTIONS "LINKER:-rpath,${RetinueTorch_ROOT_DIR}/lib"
    INTERFACE_LINK_LIBRARIES
      "-Wl,--push-state,--no-as-needed;${libraries};${gomp};-Wl,--pop-state;Threads::Threads")
endfunction()

if(RetinueTorch_FOUND AND NOT TARGET Retinue::LibTorch)
  find_package(Threads REQUIRED)
  _rt_add_target()
endif()
mark_as_advanced(RetinueTorch_INCLUDE_DIR)
