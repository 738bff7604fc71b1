# The CUDA backend, libkeel_cuda.so: kernels/*/*_cuda.cu and *_cuda.cpp by nvcc (12.4 or newer). KEEL_CUDA=AUTO builds it where
# nvcc and cuBLASLt are, ON insists, OFF does without; nothing else needs a toolkit.
if(KEEL_CUDA STREQUAL "OFF")
  return()
endif()

find_program(KEEL_NVCC nvcc HINTS ${CUDAToolkit_ROOT}/bin $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
if(KEEL_NVCC AND NOT CMAKE_CUDA_COMPILER)
  # One that does not compile, as without its toolkit, is none.
  set(probe ${PROJECT_BINARY_DIR}/CMakeFiles/cuda_probe)
  file(WRITE ${probe}.cu "#include <cuda_runtime.h>\nint main() { return 0; }\n")
  execute_process(COMMAND ${KEEL_NVCC} -c ${probe}.cu -o ${probe}.o RESULT_VARIABLE failure OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failure EQUAL 0)
    set(CMAKE_CUDA_COMPILER ${KEEL_NVCC})
  endif()
endif()
if(CMAKE_CUDA_COMPILER)
  # The newest architecture by its own code, later ones by PTX.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    set(default_architectures ON)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit)
endif()
if(NOT CMAKE_CUDA_COMPILER OR NOT TARGET CUDA::cudart_static OR NOT TARGET CUDA::cublasLt
   OR CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.4)
  if(KEEL_CUDA STREQUAL "ON")
    message(FATAL_ERROR "KEEL_CUDA=ON: nvcc 12.4 or newer, the static CUDA runtime and cuBLASLt are needed "
                        "(tools/cuda-toolkit.sh gets them); nvcc: '${KEEL_NVCC}' ${CMAKE_CUDA_COMPILER_VERSION} ${said}")
  endif()
  message(STATUS "No CUDA toolkit: libkeel_cuda is not built")
  return()
endif()

# CMake before 3.26 does not know that nvcc has C++20.
foreach(kind STANDARD EXTENSION)
  if(NOT CMAKE_CUDA20_${kind}_COMPILE_OPTION)
    set(CMAKE_CUDA20_${kind}_COMPILE_OPTION -std=c++20)
  endif()
endforeach()
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8 AND default_architectures)
  list(APPEND CMAKE_CUDA_ARCHITECTURES 100-real)
endif()

file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*/*_cuda.cu ${PROJECT_SOURCE_DIR}/kernels/*/*_cuda.cpp)
# What it needs of libkeel it carries itself: programs that have that linked in open it, too.
add_library(keel_cuda SHARED ${cuda_sources} ${PROJECT_SOURCE_DIR}/lib/base/error.cpp ${PROJECT_SOURCE_DIR}/lib/base/utf8.cpp)
set_target_properties(keel_cuda PROPERTIES CUDA_STANDARD 20 CUDA_VISIBILITY_PRESET hidden)
# What ptxas says of registers is kept beside the objects (tests/cuda_evidence).
set(launcher ${CMAKE_CUDA_COMPILER_LAUNCHER})
if(CCACHE_PROGRAM AND NOT launcher)
  set(launcher ${CCACHE_PROGRAM})
endif()
list(PREPEND launcher ${CMAKE_CURRENT_LIST_DIR}/nvcc_log.sh)
set_target_properties(keel_cuda PROPERTIES CUDA_COMPILER_LAUNCHER "${launcher}")
target_include_directories(keel_cuda PRIVATE ${KEEL_INCLUDE_DIR})
target_compile_definitions(keel_cuda PRIVATE KEEL_VERSION="${PROJECT_VERSION}")
target_compile_options(keel_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Xptxas=-v -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>)
target_link_libraries(keel_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt)
target_link_options(keel_cuda PRIVATE -static-libstdc++ -static-libgcc)
install(TARGETS keel_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
