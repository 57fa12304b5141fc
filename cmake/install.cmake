# What `cmake --install` puts where: headers, both libraries, pkg-config and CMake package files, and
# with MMLA_APP the command, its manual page and its completion.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/megamla DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS megamla_shared megamla_static EXPORT megamlaTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/megamla)
install(EXPORT megamlaTargets NAMESPACE megamla:: DESTINATION ${package_dir})
configure_package_config_file(cmake/megamlaConfig.cmake.in megamlaConfig.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 the interface may change with the minor number (include/megamla/version.h).
write_basic_package_version_file(megamlaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/megamlaConfig.cmake
  ${PROJECT_BINARY_DIR}/megamlaConfigVersion.cmake DESTINATION ${package_dir})

set(mmla_private_libs "-lm -pthread")
if(mmla_openmp_runtime)
  string(APPEND mmla_private_libs " ${mmla_openmp_runtime}")
endif()
if(mmla_have_cuda)
  string(APPEND mmla_private_libs " -ldl -lrt") # NVIDIA's runtime, inside libmegamla.a, uses them
endif()
# The .pc file finds its prefix from where it lies, so the installed tree may be moved.
file(RELATIVE_PATH mmla_pc_to_prefix
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/megamla.pc.in megamla.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/megamla.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(MMLA_APP)
  install(TARGETS megamla DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES app/cli/megamla.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES app/cli/megamla.bash RENAME megamla
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endif()
