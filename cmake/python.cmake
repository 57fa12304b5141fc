# The Python package's binding: python/src/*.c, plain C over the public headers, called through the
# C ABI of tvm-ffi. scikit-build-core (pyproject.toml) asks for it with MMLA_PYTHON; what it installs
# is the component `python`, which becomes the wheel's megamla/lib.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# tvm_ffi_config(VARIABLE WHAT) - where the headers and the runtime of apache-tvm-ffi lie.
function(tvm_ffi_config variable what)
  execute_process(COMMAND ${Python3_EXECUTABLE} -m tvm_ffi.config --${what}
    OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(${variable} ${answer} PARENT_SCOPE)
endfunction()
tvm_ffi_config(tvm_ffi_include includedir)
tvm_ffi_config(tvm_ffi_dlpack dlpack-includedir)
tvm_ffi_config(tvm_ffi_library libfiles)

file(GLOB binding_sources CONFIGURE_DEPENDS python/src/*.c)
add_library(megamla_python MODULE ${binding_sources})
mmla_target_flags(megamla_python)
target_include_directories(megamla_python PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(megamla_python SYSTEM PRIVATE ${tvm_ffi_include} ${tvm_ffi_dlpack})
# The runtime is loaded, by its name, before the binding is; its place on this machine is not kept.
target_link_libraries(megamla_python PRIVATE megamla_shared ${tvm_ffi_library} Threads::Threads)
# A call reads its arguments by functions of a few instructions in other files: worth inlining.
include(CheckIPOSupported)
check_ipo_supported(RESULT mmla_python_ipo LANGUAGES C OUTPUT mmla_python_ipo_why)
set_target_properties(megamla_python PROPERTIES PREFIX "" OUTPUT_NAME megamla_binding
  INTERPROCEDURAL_OPTIMIZATION ${mmla_python_ipo}
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")

# A wheel has no symbolic links: the library goes in once, under the name that the loader looks for.
install(TARGETS megamla_python LIBRARY DESTINATION megamla/lib COMPONENT python)
install(PROGRAMS $<TARGET_FILE:megamla_shared> DESTINATION megamla/lib COMPONENT python
  RENAME $<TARGET_SONAME_FILE_NAME:megamla_shared>)
