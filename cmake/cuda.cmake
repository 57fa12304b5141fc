# The CUDA backend. nvcc is called by commands of ours, one a .cu file, and not through CMake's CUDA
# language: the objects join a library that a C compiler links, so whoever uses it needs no nvcc and
# no C++ runtime, and the assembler's report of every kernel is kept beside its object.
#
# Everything that needs the toolkit (the files that end with _cuda.c, the .cu files, and NVIDIA's
# runtime, which is linked statically) becomes one object, megamla_cuda.o, in which only names that
# begin with mmla_ stay global. It goes into both libraries: neither shows anything of CUDA, whoever
# links the static one needs no toolkit, and the program may hold a CUDA runtime of its own, of any
# version.

# Native code is made for each, and PTX, which a driver compiles for later GPUs, of the last without
# a letter: the a of 90a means Hopper with its own instructions, which no other GPU runs.
set(MMLA_CUDA_ARCHS "80;86;89;90a;100;120" CACHE STRING
  "Compute capabilities to make code for; one of them, such as 90a, builds faster")

# Finds nvcc and what lies beside it; sets nvcc_error to why there is no CUDA, or to "".
function(mmla_cuda_find)
  set(nvcc_error "" PARENT_SCOPE)
  if(MMLA_NVCC AND NOT EXISTS ${MMLA_NVCC})
    unset(MMLA_NVCC CACHE)
  endif()
  # CUDACXX is a path or a name. The last place is where tools/setup.sh puts one.
  find_program(MMLA_NVCC NAMES $ENV{CUDACXX} nvcc NAMES_PER_DIR PATH_SUFFIXES bin
    HINTS ENV CUDA_HOME ENV CUDA_PATH
    PATHS /usr/local/cuda/bin ${PROJECT_SOURCE_DIR}/build/cuda-toolkit/nvidia/cu13/bin)
  if(NOT MMLA_NVCC)
    set(nvcc_error "no nvcc in PATH, CUDA_HOME or /usr/local/cuda" PARENT_SCOPE)
    return()
  endif()

  # nvcc may be a script that calls another, so it is asked itself where its headers are.
  execute_process(COMMAND ${MMLA_NVCC} --version OUTPUT_VARIABLE version ERROR_QUIET)
  execute_process(COMMAND ${MMLA_NVCC} --dryrun -c -x cu /dev/null ERROR_VARIABLE dry OUTPUT_QUIET)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" version "${version}")
  set(release "${CMAKE_MATCH_1}")
  string(REGEX MATCH "#\\$ TOP=([^\n]+)" top "${dry}")
  if(NOT release OR NOT top)
    set(nvcc_error "${MMLA_NVCC} does not work: ${dry}" PARENT_SCOPE)
    return()
  endif()
  get_filename_component(root ${CMAKE_MATCH_1} ABSOLUTE)
  set(nvcc_release ${release} PARENT_SCOPE)
  if(release VERSION_LESS 12.0) # the first with sm_90a and with parameters that are not copied
    set(nvcc_error "${MMLA_NVCC} is of CUDA ${release}, must be 12.0 or later" PARENT_SCOPE)
    return()
  endif()

  # A toolkit that moved is looked for again.
  if(NOT "${mmla_cuda_root}" STREQUAL "${root}")
    unset(MMLA_CUDA_INCLUDE CACHE)
    unset(MMLA_CUDART_STATIC CACHE)
    set(mmla_cuda_root ${root} CACHE INTERNAL "")
  endif()
  set(target targets/${CMAKE_SYSTEM_PROCESSOR}-linux)
  string(REPLACE aarch64 sbsa target ${target})
  find_path(MMLA_CUDA_INCLUDE cuda_runtime_api.h
    HINTS ${root}/include ${root}/${target}/include)
  find_library(MMLA_CUDART_STATIC cudart_static
    HINTS ${root}/lib64 ${root}/lib ${root}/${target}/lib)
  if(NOT MMLA_CUDA_INCLUDE OR NOT MMLA_CUDART_STATIC)
    set(nvcc_error "${root} has no cuda_runtime_api.h or no libcudart_static.a" PARENT_SCOPE)
    return()
  endif()

  # The host's C++ compiler is nvcc's business; whether it has one that it likes shows here.
  if(NOT "${mmla_nvcc_works}" STREQUAL "${MMLA_NVCC} ${release}")
    set(probe ${PROJECT_BINARY_DIR}/CMakeFiles/nvcc_probe)
    file(WRITE ${probe}.cu "__global__ void probe(void) {}\n")
    execute_process(COMMAND ${MMLA_NVCC} -std=c++17 -c ${probe}.cu -o ${probe}.o
      RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(NOT status EQUAL 0)
      set(nvcc_error "${MMLA_NVCC} does not compile: ${said}" PARENT_SCOPE)
      return()
    endif()
    set(mmla_nvcc_works "${MMLA_NVCC} ${release}" CACHE INTERNAL "")
  endif()
endfunction()

set(mmla_have_cuda OFF)
set(mmla_cudart "")
if(MMLA_CUDA STREQUAL "AUTO" AND CMAKE_CROSSCOMPILING)
  message(STATUS "CUDA: off in a cross build")
elseif(MMLA_CUDA)
  mmla_cuda_find()
  if(nvcc_error STREQUAL "")
    set(mmla_have_cuda ON)
  elseif(MMLA_CUDA STREQUAL "AUTO")
    message(NOTICE "-- CUDA: off, ${nvcc_error}")
  else()
    message(FATAL_ERROR "MMLA_CUDA is ON, but ${nvcc_error}")
  endif()
endif()

# Files that need the toolkit end with _cuda.c; those that stand in for some of them with _none.c.
if(NOT mmla_have_cuda)
  set(mmla_cuda_excluded "_cuda\\.c$")
  return()
endif()
set(mmla_cudart ${MMLA_CUDART_STATIC})
set(mmla_cuda_excluded "/gpu(_[a-z]+)?_none\\.c$")

# The list without what this nvcc does not know; it names architectures without their letters.
execute_process(COMMAND ${MMLA_NVCC} --list-gpu-arch OUTPUT_VARIABLE known)
set(mmla_cuda_archs "")
foreach(arch ${MMLA_CUDA_ARCHS})
  string(REGEX REPLACE "[a-z]$" "" plain ${arch})
  if(plain LESS 80)
    message(FATAL_ERROR "MMLA_CUDA_ARCHS has ${arch}, must be 80 or more")
  elseif(known MATCHES "compute_${plain}\n")
    list(APPEND mmla_cuda_archs ${arch})
  else()
    message(STATUS "CUDA: no code for ${arch}, which nvcc ${nvcc_release} does not know")
  endif()
endforeach()
if(NOT mmla_cuda_archs)
  message(FATAL_ERROR
    "MMLA_CUDA_ARCHS is '${MMLA_CUDA_ARCHS}', none of which nvcc ${nvcc_release} knows")
endif()
set(nvcc_archs "")
set(ptx "")
foreach(arch ${mmla_cuda_archs})
  list(APPEND nvcc_archs -gencode arch=compute_${arch},code=sm_${arch})
  if(arch MATCHES "^[0-9]+$")
    set(ptx ${arch})
  endif()
endforeach()
list(JOIN mmla_cuda_archs ", " mmla_cuda_names)
set(ptx_names "")
if(ptx)
  set(ptx_names ", and PTX of ${ptx}")
  list(APPEND nvcc_archs -gencode arch=compute_${ptx},code=compute_${ptx})
endif()
message(NOTICE "-- CUDA: ${MMLA_NVCC} ${nvcc_release}, code for ${mmla_cuda_names}${ptx_names}")

# Rounding points are part of the contract: no contraction of a * b + c, IEEE division and roots,
# subnormals kept. Without asserts, so that every build has the same kernels. The architectures of
# one file are compiled side by side: the slowest file alone takes minutes. Line numbers, for
# profilers, would make the libraries four times as large were they not compressed.
set(nvcc_flags --threads 0 -std=c++17 -O3 -lineinfo -Xfatbin=-compress-all
  --fmad=false --ftz=false --prec-div=true --prec-sqrt=true
  -Xptxas=-v,--warn-on-spills,--warn-on-local-memory-usage,--warn-on-double-precision-use
  -Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics,-Wall
  -DNDEBUG -DMMLA_HAVE_CUDA=1 -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include)

# One object a .cu file.
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cu)
set(cuda_dir ${PROJECT_BINARY_DIR}/cuda)
string(JOIN " " about ${nvcc_release} ${mmla_cuda_archs})
file(CONFIGURE OUTPUT ${cuda_dir}/nvcc.txt CONTENT "${about}\n") # for tools/check_ptxas.py
set(kernel_objects "")
foreach(source ${cuda_sources})
  get_filename_component(name ${source} NAME_WE)
  set(object ${cuda_dir}/${name}.o)
  set(report ${cuda_dir}/${name}.ptxas)
  add_custom_command(OUTPUT ${object} BYPRODUCTS ${report}
    COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/nvcc.sh ${report} ${MMLA_WERROR} ${MMLA_NVCC}
      ${nvcc_archs} ${nvcc_flags} -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} ${PROJECT_SOURCE_DIR}/cmake/nvcc.sh DEPFILE ${object}.d VERBATIM
    COMMENT "Compiling ${name}.cu for ${mmla_cuda_names}")
  list(APPEND kernel_objects ${object})
endforeach()

# mmla_cuda_object(TARGET) - megamla_cuda.o of TARGET's objects, the kernels and the runtime, and a
# target of its own: both libraries depend on that, else a parallel make would build it twice. It
# keeps no section groups: a linker would take one of ours for that of the same name in a program's
# own runtime, whose names are not ours any more (tests/abi/check_static.sh).
function(mmla_cuda_object target)
  set(object ${PROJECT_BINARY_DIR}/megamla_cuda.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -Wl,--force-group-allocation -o ${object}
      $<TARGET_OBJECTS:${target}> ${kernel_objects} ${mmla_cudart}
    COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=mmla_* ${object}
    DEPENDS $<TARGET_OBJECTS:${target}> ${kernel_objects} ${mmla_cudart}
    COMMAND_EXPAND_LISTS VERBATIM COMMENT "Joining the CUDA objects")
  add_custom_target(megamla_cuda DEPENDS ${object})
  add_dependencies(megamla_cuda ${target})
  set(mmla_cuda_objects ${object} PARENT_SCOPE)
endfunction()
