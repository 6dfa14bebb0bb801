# FindRetinueCuda: what Retinue's CUDA code needs besides a CUDA build of LibTorch, which FindRetinueTorch found before:
# the CUDA runtime of LibTorch's own major version and NCCL's header. The wheel has most of it beside torch/, in nvidia/;
# the rest, and all of it for a LibTorch archive, is a CUDA toolkit's.
#
# Looked for: nccl.h in the wheel's nvidia/nccl, in RetinueCuda_NCCL_ROOT, in the toolkit, in the system.
#
# Gives:
#   Retinue::Cuda                       imported target: headers, and libcudart
#   RetinueCuda_FOUND, RetinueCuda_VERSION (major)
#   RetinueCuda_REASON_FAILURE_MESSAGE  why not, as one sentence
set(RetinueCuda_REASON_FAILURE_MESSAGE "")
set(RetinueCuda_VERSION "")
unset(_rt_cuda_runtime)

# LibTorch itself says which runtime it was linked with, as libcudart.so.13.
if(RetinueTorch_c10_cuda_LIBRARY)
  file(STRINGS ${RetinueTorch_c10_cuda_LIBRARY} _rt_needed REGEX "libcudart\\.so\\.[0-9]+" LIMIT_COUNT 1)
  if(_rt_needed MATCHES "libcudart\\.so\\.([0-9]+)")
    set(RetinueCuda_VERSION ${CMAKE_MATCH_1})
  endif()
endif()
if(NOT RetinueTorch_FOUND OR NOT RetinueTorch_HAS_CUDA)
  set(RetinueCuda_REASON_FAILURE_MESSAGE "LibTorch in ${RetinueTorch_ROOT_DIR} is a CPU build: name a CUDA build by \
Torch_DIR, or by RETINUE_TORCH_WHEEL for scripts/bootstrap")
elseif(RetinueCuda_VERSION STREQUAL "")
  set(RetinueCuda_REASON_FAILURE_MESSAGE
    "${RetinueTorch_c10_cuda_LIBRARY} needs no libcudart of a plain name: it has one of its own, and Retinue can't share it")
else()
  cmake_path(GET RetinueTorch_ROOT_DIR PARENT_PATH _rt_beside)
  # From CUDA 13 on in one folder, before that in one for each part.
  set(_rt_wheel_cuda ${_rt_beside}/nvidia/cu${RetinueCuda_VERSION} ${_rt_beside}/nvidia/cuda_runtime
    ${_rt_beside}/nvidia/cublas ${_rt_beside}/nvidia/cusparse ${_rt_beside}/nvidia/cusolver)
  find_package(CUDAToolkit QUIET)
  set(_rt_toolkit_includes "")
  if(CUDAToolkit_FOUND AND CUDAToolkit_VERSION_MAJOR STREQUAL RetinueCuda_VERSION)
    set(_rt_toolkit_includes ${CUDAToolkit_INCLUDE_DIRS})
  endif()

  set(_rt_cuda_includes "")
  foreach(_rt_header cublas_v2.h cusparse.h cusolverDn.h cuda_runtime_api.h crt/host_defines.h nccl.h)
    find_path(_rt_include ${_rt_header} NO_CACHE
      PATHS ${_rt_wheel_cuda} ${_rt_beside}/nvidia/nccl ${RetinueCuda_NCCL_ROOT} ${_rt_toolkit_includes}
      PATH_SUFFIXES include NO_DEFAULT_PATH)
    if(NOT _rt_include AND _rt_header STREQUAL "nccl.h")
      find_path(_rt_include ${_rt_header} NO_CACHE)
    endif()
    if(_rt_include)
      list(APPEND _rt_cuda_includes ${_rt_include})
    else()
      list(APPEND _rt_missing ${_rt_header})
    endif()
    unset(_rt_include)
  endforeach()
  list(REMOVE_DUPLICATES _rt_cuda_includes)
  find_file(_rt_cuda_runtime libcudart.so.${RetinueCuda_VERSION} NO_CACHE
    PATHS ${_rt_wheel_cuda} ${RetinueTorch_ROOT_DIR} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib NO_DEFAULT_PATH)
  if(_rt_missing)
    list(JOIN _rt_missing ", " _rt_missing)
    set(RetinueCuda_REASON_FAILURE_MESSAGE "no ${_rt_missing} of CUDA ${RetinueCuda_VERSION} is found: install that \
CUDA toolkit and NCCL's header (RetinueCuda_NCCL_ROOT names its folder)")
  elseif(NOT _rt_cuda_runtime)
    set(RetinueCuda_REASON_FAILURE_MESSAGE
      "no libcudart.so.${RetinueCuda_VERSION}, which LibTorch in ${RetinueTorch_ROOT_DIR} uses, is found")
  endif()
  unset(_rt_missing)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RetinueCuda
  REQUIRED_VARS _rt_cuda_runtime
  REASON_FAILURE_MESSAGE "${RetinueCuda_REASON_FAILURE_MESSAGE}")
if(RetinueCuda_REASON_FAILURE_MESSAGE)
  set(RetinueCuda_FOUND OFF)
endif()

if(RetinueCuda_FOUND AND NOT TARGET Retinue::Cuda)
  add_library(Retinue::Cuda INTERFACE IMPORTED)
  cmake_path(GET _rt_cuda_runtime PARENT_PATH _rt_cuda_libraries)
  set_target_properties(Retinue::Cuda PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_rt_cuda_includes}"
    INTERFACE_LINK_LIBRARIES ${_rt_cuda_runtime}
    INTERFACE_LINK_OPTIONS "LINKER:-rpath,${_rt_cuda_libraries}")
endif()
