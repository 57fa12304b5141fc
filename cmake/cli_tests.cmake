# The command as a user meets it: its cases, files that lie, the samples and what is written of it.
if(MMLA_APP AND NOT CMAKE_CROSSCOMPILING)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(cli ${PROJECT_SOURCE_DIR}/tests/cli)
  add_test(NAME cli_cases COMMAND sh ${cli}/run_cases.sh $<TARGET_FILE:megamla>
    ${PROJECT_SOURCE_DIR})
  set(hostile ${Python3_EXECUTABLE} ${cli}/check_hostile.py $<TARGET_FILE:megamla>
    ${PROJECT_SOURCE_DIR})
  if(MMLA_SANITIZE) # which reserves terabytes of addresses
    list(APPEND hostile --sanitized)
  endif()
  add_test(NAME cli_hostile COMMAND ${hostile})
  if(NOT MMLA_SANITIZE) # which keeps memory of its own
    add_test(NAME cli_memory COMMAND ${Python3_EXECUTABLE} ${cli}/check_memory.py
      $<TARGET_FILE:megamla> ${PROJECT_SOURCE_DIR})
  endif()
  if(mmla_have_cuda)
    add_test(NAME cli_drivers COMMAND sh ${PROJECT_SOURCE_DIR}/tests/cuda/check_drivers.sh
      $<TARGET_FILE:megamla> ${CMAKE_C_COMPILER})
  endif()
  # The samples are what their generator writes; where NumPy is missing, 77 says so.
  add_test(NAME samples_check COMMAND ${Python3_EXECUTABLE} ${cli}/check_samples.py
    ${PROJECT_SOURCE_DIR})
  set_tests_properties(samples_check PROPERTIES SKIP_RETURN_CODE 77)
  add_test(NAME cli_words COMMAND ${Python3_EXECUTABLE} ${cli}/check_words.py
    $<TARGET_FILE:megamla> ${PROJECT_SOURCE_DIR})
endif()
