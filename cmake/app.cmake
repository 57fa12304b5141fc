# The megamla command: a client of include/megamla like any other.
find_package(PkgConfig REQUIRED)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)

file(GLOB_RECURSE app_sources CONFIGURE_DEPENDS model/*.c app/*.c)
list(FILTER app_sources EXCLUDE REGEX "_test\\.c$")
list(FILTER app_sources EXCLUDE REGEX "/main\\.c$")
add_library(megamla_app STATIC ${app_sources})
mmla_target_flags(megamla_app)
target_compile_definitions(megamla_app PRIVATE _GNU_SOURCE)
target_include_directories(megamla_app PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(megamla_app PUBLIC megamla_static PkgConfig::jansson m ${CMAKE_DL_LIBS})

add_executable(megamla app/cli/main.c)
mmla_target_flags(megamla)
target_link_libraries(megamla PRIVATE megamla_app)
