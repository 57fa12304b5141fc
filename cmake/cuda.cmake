# The CUDA backend. nvcc is called by commands of ours, one a .cu file, and not through CMake's CUDA
# language: the objects join a library that a C compiler links, so whoever uses it needs no nvcc and
# no C++ runtime, and the assembler's report of every kernel is kept beside its object.
#
# MMLA_CUDA_ARCHS lists what native code is made for; the last one also leaves PTX, which a driver
# can compile for later GPUs. sm_90a is Hopper with its own instructions.
set(MMLA_CUDA_ARCHS "80;86;89;90a;100;120" CACHE STRING "Compute capabilities to make code for")

set(mmla_have_cuda OFF)
if(MMLA_CUDA)
  find_program(MMLA_NVCC nvcc HINTS ENV CUDACXX PATHS /usr/local/cuda/bin)
  if(MMLA_NVCC)
    set(mmla_have_cuda ON)
  elseif(NOT MMLA_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "MMLA_CUDA is ON, but no nvcc was found: put it in PATH")
  endif()
endif()

# Files that need the toolkit end with _cuda.c; gpu_none.c stands in for them.
if(NOT mmla_have_cuda)
  set(mmla_cuda_excluded "_cuda\\.c$")
  return()
endif()
set(mmla_cuda_excluded "gpu(_[a-z]+)?_none\\.c$")

get_filename_component(cuda_root ${MMLA_NVCC} REALPATH)
get_filename_component(cuda_root ${cuda_root}/../.. ABSOLUTE)
find_path(MMLA_CUDA_INCLUDE cuda_runtime_api.h REQUIRED HINTS ${cuda_root}/include
  ${cuda_root}/targets/x86_64-linux/include ${cuda_root}/targets/sbsa-linux/include)
find_library(MMLA_CUDART_STATIC cudart_static REQUIRED HINTS ${cuda_root}/lib64 ${cuda_root}/lib
  ${cuda_root}/targets/x86_64-linux/lib ${cuda_root}/targets/sbsa-linux/lib)

set(nvcc_archs "")
foreach(arch ${MMLA_CUDA_ARCHS})
  list(APPEND nvcc_archs -gencode arch=compute_${arch},code=sm_${arch})
endforeach()
list(GET MMLA_CUDA_ARCHS -1 last_arch)
list(APPEND nvcc_archs -gencode arch=compute_${last_arch},code=compute_${last_arch})

# Rounding points are part of the contract: no contraction of a * b + c, IEEE division and roots,
# subnormals kept.
set(nvcc_flags -std=c++17 -O3 -lineinfo --fmad=false --ftz=false --prec-div=true --prec-sqrt=true
  -Xptxas=-v,--warn-on-spills,--warn-on-local-memory-usage,--warn-on-double-precision-use
  -Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics,-Wall
  -DMMLA_HAVE_CUDA=1)

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cu)
set(mmla_cuda_objects "")
foreach(source ${cuda_sources})
  get_filename_component(name ${source} NAME_WE)
  set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
  set(report ${PROJECT_BINARY_DIR}/cuda/${name}.ptxas)
  add_custom_command(OUTPUT ${object} BYPRODUCTS ${report}
    COMMAND sh -c "\"$@\" 2>${report} || { cat ${report} >&2; exit 1; }" nvcc
      ${MMLA_NVCC} ${nvcc_archs} ${nvcc_flags} -I${PROJECT_SOURCE_DIR}/src
      -I${PROJECT_SOURCE_DIR}/include -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d VERBATIM COMMENT "nvcc ${name}.cu")
  list(APPEND mmla_cuda_objects ${object})
endforeach()
message(STATUS "CUDA: ${MMLA_NVCC}, for ${MMLA_CUDA_ARCHS}")
