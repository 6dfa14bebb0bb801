# Installs this build into its own folder, then configures, builds and runs tests/consumer against it. With Retinue as a
# part of it tests/consumer is only configured in quick tests: it would be all of Retinue once more.
set(consumer_folder ${PROJECT_BINARY_DIR}/consumer)
add_test(NAME consumer.install
  COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${consumer_folder}/prefix)
set_tests_properties(consumer.install PROPERTIES LABELS quick TIMEOUT 120 FIXTURES_SETUP installed_package)

# What find_package says when tests/consumer asks for the package in a wrong way.
function(retinue_package_says name option text)
  add_test(NAME consumer.${name}
    COMMAND ${CMAKE_COMMAND} --fresh -G ${CMAKE_GENERATOR} -S ${PROJECT_SOURCE_DIR}/tests/consumer
      -B ${consumer_folder}/${name} ${option} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
      -DCMAKE_PREFIX_PATH=${consumer_folder}/prefix)
  set_tests_properties(consumer.${name} PROPERTIES LABELS quick TIMEOUT 120 FIXTURES_REQUIRED installed_package
    PASS_REGULAR_EXPRESSION "${text}")
endfunction()
retinue_package_says(unknown_component -DCONSUMER_COMPONENT=troch
  "Retinue has no component troch; it has core, mpi, torch and datasets")
retinue_package_says(other_name -DCONSUMER_PACKAGE=Retinue "the package's name is retinue")
# Another setting of the C++ library than this build's: its types differ, and programs crashed.
add_test(NAME consumer.other_types
  COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -D_GLIBCXX_DEBUG -fdata-sections -Wl,--gc-sections -I${PROJECT_SOURCE_DIR}/include
    -include retinue/base/error.h ${PROJECT_SOURCE_DIR}/tests/consumer/empty.cpp
    -o ${consumer_folder}.other_types $<TARGET_FILE:retinue_core>)
set_tests_properties(consumer.other_types PROPERTIES LABELS quick TIMEOUT 120
  PASS_REGULAR_EXPRESSION "undefined .*retinue::detail::kLibraryWasBuiltWithGlibcxxDebug" ENVIRONMENT LC_ALL=C)
add_test(NAME consumer.components
  COMMAND ${PROJECT_SOURCE_DIR}/tests/package/components ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR} ${consumer_folder}/components)
set_tests_properties(consumer.components PROPERTIES LABELS quick TIMEOUT 120)
if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  add_test(NAME package.refusals
    COMMAND ${PROJECT_SOURCE_DIR}/tests/package/refusals ${CMAKE_COMMAND} ${consumer_folder}/refusals ${CMAKE_CXX_COMPILER})
  set_tests_properties(package.refusals PROPERTIES LABELS quick TIMEOUT 120)
  if(RETINUE_HAS_TORCH)
    add_test(NAME package.wheel COMMAND ${PROJECT_SOURCE_DIR}/tests/package/wheel
      ${consumer_folder}/wheel ${CMAKE_CXX_COMPILER} ${RetinueTorch_VERSION})
    set_tests_properties(package.wheel PROPERTIES LABELS full TIMEOUT 1800)
  endif()
  # Old libdw finds files and lines of what clang compiled in another way than of this build.
  if(RETINUE_CLANG)
    set(folder ${consumer_folder}/clang_stack)
    add_test(NAME consumer.clang_stack
      COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${PROJECT_SOURCE_DIR}/tests/consumer ${folder}
        --build-generator ${CMAKE_GENERATOR}
        --build-options -DCONSUMER_PROGRAM=failing_consumer.cpp -DCMAKE_CXX_COMPILER=${RETINUE_CLANG} -DCMAKE_CXX_FLAGS=-g1
          -DCMAKE_PREFIX_PATH=${consumer_folder}/prefix
        --test-command ${folder}/consumer)
    set_tests_properties(consumer.clang_stack PROPERTIES LABELS quick TIMEOUT 120 FIXTURES_REQUIRED installed_package
      PASS_REGULAR_EXPRESSION "fail.* at failing_consumer\\.cpp:9 ")
  else()
    retinue_skipped_test(consumer.clang_stack clang)
  endif()
  foreach(platform debian13/g++ debian13/clang++-19 debian13/deb here/clang++-16 here/aarch64)
    add_test(NAME platforms.${platform} COMMAND ${PROJECT_SOURCE_DIR}/scripts/platforms ${platform})
    set_tests_properties(platforms.${platform} PROPERTIES
      LABELS full TIMEOUT 7200 PROCESSORS 2 SKIP_RETURN_CODE 77 RESOURCE_LOCK platforms)
  endforeach()
endif()

foreach(component core torch datasets mpi)
  if(NOT TARGET retinue_${component} OR (component STREQUAL "mpi" AND NOT RETINUE_HAS_MPI))
    continue()
  endif()
  set(options
    -DCONSUMER_COMPONENT=${component}
    -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
    -DCMAKE_BUILD_TYPE=None
    -DCMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS})
  if(component MATCHES "torch|datasets")
    list(APPEND options -DRetinueTorch_ROOT=${RetinueTorch_ROOT_DIR})
  endif()
  if(NOT component MATCHES "mpi|datasets")
    add_test(NAME consumer.subproject_${component}
      COMMAND ${CMAKE_COMMAND} --fresh -G ${CMAKE_GENERATOR} -S ${PROJECT_SOURCE_DIR}/tests/consumer
        -B ${consumer_folder}/subproject_${component} -DCONSUMER_SOURCE=${PROJECT_SOURCE_DIR}
        -DRETINUE_TORCH=$<IF:$<STREQUAL:${component},torch>,ON,OFF> ${options})
    set_tests_properties(consumer.subproject_${component} PROPERTIES LABELS quick TIMEOUT 120)
  endif()
  if(component STREQUAL "core")
    set(folder ${consumer_folder}/built_subproject)
    add_test(NAME consumer.built_subproject
      COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${PROJECT_SOURCE_DIR}/tests/consumer ${folder}
        --build-generator ${CMAKE_GENERATOR}
        --build-options -DCONSUMER_SOURCE=${PROJECT_SOURCE_DIR} -DRETINUE_TORCH=OFF ${options}
        --test-command ${folder}/consumer)
    set_tests_properties(consumer.built_subproject PROPERTIES
      LABELS full TIMEOUT 1800 PASS_REGULAR_EXPRESSION "consumer: ok")
  endif()
  list(APPEND options -DCMAKE_PREFIX_PATH=${consumer_folder}/prefix)
  set(run ${consumer_folder}/${component}/consumer)
  if(component STREQUAL "mpi")
    list(APPEND options -DMPI_CXX_COMPILER=${MPI_CXX_COMPILER} -DMPIEXEC_EXECUTABLE=${MPIEXEC_EXECUTABLE})
    list(PREPEND run ${PROJECT_SOURCE_DIR}/tests/mpi/run ${MPIEXEC_EXECUTABLE} -n 2)
  endif()
  add_test(NAME consumer.${component}
    COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${PROJECT_SOURCE_DIR}/tests/consumer ${consumer_folder}/${component}
      --build-generator ${CMAKE_GENERATOR} --build-options ${options}
      --test-command ${run})
  set_tests_properties(consumer.${component} PROPERTIES
    LABELS quick TIMEOUT 600 FIXTURES_REQUIRED installed_package PASS_REGULAR_EXPRESSION "consumer: ok")
endforeach()
