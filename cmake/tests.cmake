# One test program a file: *_test.c and *_prop.c beside what they test, and tests/**/*_test.c.
find_package(PkgConfig REQUIRED)
pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka)

file(GLOB support_sources CONFIGURE_DEPENDS tests/support/*.c)
if(support_sources)
  add_library(test_support STATIC ${support_sources})
  mmla_target_flags(test_support)
  target_include_directories(test_support PUBLIC src include tests ${PROJECT_SOURCE_DIR})
  target_link_libraries(test_support PUBLIC PkgConfig::cmocka megamla_static)
endif()

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS src/*_test.c src/*_prop.c tests/*_test.c
     app/*_test.c model/*_test.c)
mmla_isa_sources(test_sources)
foreach(source ${test_sources})
  get_filename_component(name ${source} NAME_WE)
  if(source MATCHES "/(app|model)/" AND NOT MMLA_APP)
    continue()
  endif()
  add_executable(${name} ${source})
  mmla_target_flags(${name})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE MMLA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_include_directories(${name} PRIVATE src include tests ${PROJECT_SOURCE_DIR})
  # Internal functions are hidden in the shared library, so tests link the static one.
  target_link_libraries(${name} PRIVATE megamla_static PkgConfig::cmocka m)
  if(TARGET test_support)
    target_link_libraries(${name} PRIVATE test_support)
  endif()
  if(TARGET megamla_app)
    target_link_libraries(${name} PRIVATE megamla_app)
  endif()
  add_test(NAME ${name} COMMAND ${name})
endforeach()

# Tests of what only kernels can include: tests/gpu/*_test.cu, a program each.
if(mmla_have_cuda)
  file(GLOB gpu_tests CONFIGURE_DEPENDS tests/gpu/*_test.cu)
  foreach(source ${gpu_tests})
    get_filename_component(name ${source} NAME_WE)
    set(program ${PROJECT_BINARY_DIR}/${name})
    add_custom_command(OUTPUT ${program}
      COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/nvcc.sh ${program}.ptxas ${MMLA_WERROR} ${MMLA_NVCC}
        ${nvcc_archs} ${nvcc_flags} -MD -MF ${program}.d -o ${program} ${source}
        ${cmocka_LINK_LIBRARIES}
      DEPENDS ${source} ${PROJECT_SOURCE_DIR}/cmake/nvcc.sh DEPFILE ${program}.d VERBATIM
      COMMENT "Compiling ${name}.cu for ${mmla_cuda_names}")
    list(APPEND gpu_test_programs ${program})
    add_test(NAME ${name} COMMAND ${program})
  endforeach()
  add_custom_target(gpu_tests ALL DEPENDS ${gpu_test_programs})
endif()

# Minutes under an emulator or the thread sanitizer: `ctest -LE slow` leaves them out.
foreach(name check_quick_test check_corrupt_test check_copies_test bench_gpu_test
    bench_scenario_test)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES LABELS slow)
  endif()
endforeach()

# Checks of the source tree and of what is installed. They do not depend on sanitizers or on the
# processor, so the plain native build alone runs them.
if(NOT CMAKE_CROSSCOMPILING AND NOT MMLA_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  find_program(MMLA_CXX NAMES c++ g++ clang++ REQUIRED)
  set(abi ${PROJECT_SOURCE_DIR}/tests/abi)
  add_test(NAME layers COMMAND ${Python3_EXECUTABLE} tools/check_layers.py
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  add_test(NAME layers_selftest COMMAND ${Python3_EXECUTABLE} tools/check_layers.py --selftest
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  add_test(NAME ptxas_selftest COMMAND ${Python3_EXECUTABLE} tools/check_ptxas.py --selftest
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(mmla_have_cuda)
    add_test(NAME ptxas COMMAND ${Python3_EXECUTABLE} tools/check_ptxas.py ${PROJECT_BINARY_DIR}
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  endif()
  add_test(NAME test_count COMMAND sh ${PROJECT_SOURCE_DIR}/tests/tools/check_count.sh
    ${PROJECT_SOURCE_DIR}/tools/count_tests.awk)
  add_test(NAME bench_table COMMAND ${Python3_EXECUTABLE}
    ${PROJECT_SOURCE_DIR}/tests/tools/check_bench_table.py ${PROJECT_SOURCE_DIR})
  add_test(NAME bench_plot COMMAND ${Python3_EXECUTABLE}
    ${PROJECT_SOURCE_DIR}/tests/tools/check_bench_plot.py ${PROJECT_SOURCE_DIR})
  add_test(NAME bench_prefill COMMAND ${Python3_EXECUTABLE}
    ${PROJECT_SOURCE_DIR}/tests/tools/check_bench_prefill.py ${PROJECT_SOURCE_DIR})
  add_test(NAME abi_exports COMMAND sh ${abi}/check_exports.sh $<TARGET_FILE:megamla_shared>
    ${abi}/exports.txt)
  add_test(NAME abi_static COMMAND sh ${abi}/check_static.sh $<TARGET_FILE:megamla_static>
    ${CMAKE_C_COMPILER} ${PROJECT_SOURCE_DIR}/include ${mmla_cudart})
  add_test(NAME readme_example
    COMMAND bash ${PROJECT_SOURCE_DIR}/tests/docs/readme_example.sh ${CMAKE_C_COMPILER})
  add_test(NAME abi_headers COMMAND sh ${abi}/check_headers.sh ${PROJECT_SOURCE_DIR}/include
    ${CMAKE_C_COMPILER} ${MMLA_CXX})
  add_test(NAME install_client COMMAND sh ${PROJECT_SOURCE_DIR}/tests/install/check_install.sh
    ${PROJECT_BINARY_DIR} ${CMAKE_C_COMPILER} ${MMLA_CXX})
endif()

include(cmake/cli_tests.cmake)
