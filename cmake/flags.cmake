# Warnings, sanitizers, and the flags of files written for one instruction set.

set(MMLA_SANITIZE "" CACHE STRING "Sanitizers to build with, for example address,undefined")

# Rounding points are part of the contract: no contraction of a * b + c, no fast-math. Not setting
# errno and not trapping change no value and let loops vectorise.
set(mmla_flags -ffp-contract=off -fno-math-errno -fno-trapping-math
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wno-psabi
    -Wno-sign-conversion) # clang counts it as part of -Wconversion, gcc does not
if(MMLA_WERROR)
  list(APPEND mmla_flags -Werror)
endif()
if(MMLA_SANITIZE)
  list(APPEND mmla_flags -fsanitize=${MMLA_SANITIZE} -fno-omit-frame-pointer
       -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MMLA_SANITIZE})
endif()

if(MMLA_FUZZ)
  list(APPEND mmla_flags -fsanitize=fuzzer-no-link)
endif()

function(mmla_target_flags target)
  target_compile_options(${target} PRIVATE ${mmla_flags})
endfunction()

# A file's name ends with the instruction set it needs; base/cpu.h says what each bit stands for.
set(mmla_flags_avx2 -mavx2 -mfma -mf16c)
set(mmla_flags_avx512 ${mmla_flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl
    -mprefer-vector-width=512)
set(mmla_flags_avx512bf16 ${mmla_flags_avx512} -mavx512bf16)

# Gives files of other instruction sets their flags; drops those of other processors.
function(mmla_isa_sources list_name)
  set(sources ${${list_name}})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(FILTER sources EXCLUDE REGEX "_neon(_test)?\\.c$")
    foreach(source ${sources})
      if(source MATCHES "_(avx2|avx512|avx512bf16)(_test)?\\.c$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
          "${mmla_flags_${CMAKE_MATCH_1}}")
      endif()
    endforeach()
  else()
    list(FILTER sources EXCLUDE REGEX "_(avx2|avx512|avx512bf16)(_test)?\\.c$")
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
      list(FILTER sources EXCLUDE REGEX "_neon(_test)?\\.c$")
    endif()
  endif()
  set(${list_name} ${sources} PARENT_SCOPE)
endfunction()
