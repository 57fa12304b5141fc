# The CUDA backend: looks for nvcc and takes *.cu into the library. There are none yet, so with
# nvcc or without, the library serves the CPU and says so when asked for a CUDA device.
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cu)
if(MMLA_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT MMLA_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "MMLA_CUDA is ON, but no nvcc was found: put it in PATH or set CUDACXX")
  endif()
  if(CMAKE_CUDA_COMPILER AND NOT cuda_sources)
    message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER} found, but this version has no CUDA kernels")
  endif()
endif()
