# The examples are clients like any other: each sees the public headers and the shared library only.
# Those that need no argument are run as tests.
option(MMLA_EXAMPLES "Build the examples, and run them as tests" ON)
if(NOT MMLA_EXAMPLES)
  return()
endif()

file(GLOB example_sources CONFIGURE_DEPENDS examples/*.c)
foreach(source ${example_sources})
  get_filename_component(name ${source} NAME_WE)
  set(target example_${name})
  add_executable(${target} ${source})
  mmla_target_flags(${target})
  target_link_libraries(${target} PRIVATE megamla_shared m)
  add_test(NAME ${target} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endforeach()
