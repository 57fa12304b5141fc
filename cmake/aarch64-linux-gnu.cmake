# Cross build for 64-bit Arm Linux; programs run under qemu's user emulation. Debian's cross
# compiler brings libc; other libraries come from tools/arm64_sysroot.sh.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static;-L;/usr/aarch64-linux-gnu)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(MMLA_ARM64_SYSROOT "" CACHE PATH "Where tools/arm64_sysroot.sh unpacked its packages")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MMLA_ARM64_SYSROOT)
if(MMLA_ARM64_SYSROOT)
  set(arm64_lib ${MMLA_ARM64_SYSROOT}/usr/lib/aarch64-linux-gnu)
  set(ENV{PKG_CONFIG_LIBDIR} ${arm64_lib}/pkgconfig)
  set(ENV{PKG_CONFIG_SYSROOT_DIR} ${MMLA_ARM64_SYSROOT})
  set(CMAKE_BUILD_RPATH ${arm64_lib})
  set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${arm64_lib})
endif()
