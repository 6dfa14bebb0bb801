# Tests of the Python package in the build folder.
file(GLOB python_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/python/*_test.py)
foreach(file IN LISTS python_tests)
  cmake_path(GET file STEM name)
  string(REGEX REPLACE "_test$" "" name ${name})
  if(RetinueTorch_PYTHON AND NOT RetinueTorch_HAS_CUDA)
    add_test(NAME python.${name} COMMAND ${RetinueTorch_PYTHON} ${file})
    set_tests_properties(python.${name} PROPERTIES LABELS quick TIMEOUT 300
      ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1;RETINUE_PATH_TABLE=default")
  else()
    retinue_skipped_test(python.${name} "a Python environment with this LibTorch")
  endif()
endforeach()
