# Headers are included as "keel/<folder>/<file>.h", in the tree as by users of the installed package: links in the build
# folder give the tree that shape.
set(KEEL_INCLUDE_DIR ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${KEEL_INCLUDE_DIR}/keel)
foreach(folder base model data train checkpoint inference generate eval convert analyze)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/lib/${folder} ${KEEL_INCLUDE_DIR}/keel/${folder} SYMBOLIC)
endforeach()
foreach(folder kernels tokenizer)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${KEEL_INCLUDE_DIR}/keel/${folder} SYMBOLIC)
endforeach()

# keel_objects(NAME SOURCES...): code compiled once, for both the shared library and the static one of the tests.
function(keel_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PUBLIC ${KEEL_INCLUDE_DIR})
endfunction()

# keel_glob(VARIABLE FOLDER...): the .cpp files below the folders, tests apart.
function(keel_glob variable)
  set(found)
  foreach(folder ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
    list(APPEND found ${sources})
  endforeach()
  list(FILTER found EXCLUDE REGEX "_test\\.cpp$")
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# keel_cpu_kernels(TARGET FILE...): compiles each file once for every instruction set of kernels/common/isa.h.
function(keel_cpu_kernels target)
  set(variants "generic:")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND variants "avx2:-march=x86-64-v3" "avx512:-march=x86-64-v4 -mprefer-vector-width=512")
  endif()
  foreach(variant ${variants})
    string(REGEX MATCH "^[^:]+" isa ${variant})
    string(REGEX REPLACE "^[^:]+:" "" flags ${variant})
    separate_arguments(flags)
    add_library(${target}_${isa} OBJECT ${ARGN})
    target_include_directories(${target}_${isa} PRIVATE ${KEEL_INCLUDE_DIR})
    target_link_libraries(${target}_${isa} PRIVATE OpenMP::OpenMP_CXX)
    target_compile_definitions(${target}_${isa} PRIVATE KEEL_ISA=isa_${isa})
    # Fused multiply-add on: kernels are checked against a reference in double with computed tolerances.
    # No traps: g++ 12 vectorises no comparison of floats below AVX-512 without it; values stay the same, NaN included.
    target_compile_options(${target}_${isa} PRIVATE -ffp-contract=fast -fno-trapping-math ${flags})
    # Into the libraries, not into ${target}: an object library does not hand on the objects of another.
    foreach(library keel keel_static)
      target_sources(${library} PRIVATE $<TARGET_OBJECTS:${target}_${isa}>)
    endforeach()
  endforeach()
endfunction()

# keel_test(NAME SOURCES... [LIBRARIES ...]): a GoogleTest program whose cases become tests of CTest.
function(keel_test name)
  cmake_parse_arguments(arg "" "" "LIBRARIES" ${ARGN})
  if(NOT KEEL_TESTS OR NOT arg_UNPARSED_ARGUMENTS)
    return()
  endif()
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE keel_static ${arg_LIBRARIES} GTest::gtest GTest::gtest_main)
  include(GoogleTest)
  # Suites named Device... have nothing to do on a CPU; tests/cuda_on_cpu runs them on the emulated device.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_FILTER -Device*:*/Device* PROPERTIES TIMEOUT 900)
endfunction()
