# Tests of the Python package in the build folder. Those that import torch need a Python that has it.
find_program(RETINUE_PYTHON python3 HINTS /usr/bin)  # The system's, for which scripts/bootstrap installs the headers.
mark_as_advanced(RETINUE_PYTHON)
file(GLOB python_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/python/*_test.py)
foreach(file IN LISTS python_tests)
  cmake_path(GET file STEM name)
  string(REGEX REPLACE "_test$" "" name ${name})
  retinue_has_line(needs_torch "import torch" ${file})
  set(python "")
  if(needs_torch AND TARGET retinue_python AND RetinueTorch_PYTHON AND NOT RetinueTorch_HAS_CUDA)
    set(python ${RetinueTorch_PYTHON})
  elseif(NOT needs_torch AND TARGET retinue_extension AND RETINUE_PYTHON)
    set(python ${RETINUE_PYTHON})
  endif()
  if(python)
    add_test(NAME python.${name} COMMAND ${python} ${file})
    set_tests_properties(python.${name} PROPERTIES LABELS quick TIMEOUT 300
      ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1;RETINUE_PATH_TABLE=default")
  elseif(needs_torch)
    retinue_skipped_test(python.${name} "a Python environment with this LibTorch")
  else()
    retinue_skipped_test(python.${name} "a Python with its headers (python3-dev)")
  endif()
endforeach()

# CPython's own tests of multiprocessing, and PyTorch's of a backend, from its wheel.
if(TARGET retinue_extension AND RETINUE_PYTHON)
  add_test(NAME python_suites.multiprocessing
    COMMAND ${RETINUE_PYTHON} ${PROJECT_SOURCE_DIR}/tests/python/suites/cpython_suite.py)
  set_tests_properties(python_suites.multiprocessing PROPERTIES LABELS full TIMEOUT 3600 SKIP_RETURN_CODE 77
    ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1")
endif()
if(TARGET retinue_python AND RetinueTorch_PYTHON AND NOT RetinueTorch_HAS_CUDA)
  foreach(world_size 2 3 4)
    add_test(NAME python_suites.distributed_${world_size}
      COMMAND ${RetinueTorch_PYTHON} ${PROJECT_SOURCE_DIR}/tests/python/suites/distributed_suite.py ${world_size})
    set_tests_properties(python_suites.distributed_${world_size} PROPERTIES LABELS full TIMEOUT 3600 SKIP_RETURN_CODE 77
      ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1")
  endforeach()
endif()
