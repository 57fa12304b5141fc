#!/bin/sh
# setup.sh WHAT... - sees to it that what a build needs is there: run, test, fmt or ci.
#
# Looks for each tool or library itself, not for its package, so whatever way it was installed will
# do. What is missing is installed with apt-get, as root; another user is told the command to run.
set -eu

missing=""

have_command() { command -v "$1" >/dev/null 2>&1; }
have_library() { have_command pkg-config && pkg-config --exists "$1"; }
have_header() { have_command cc && echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1; }
have_python() { have_command python3 && python3 -c "import $1" 2>/dev/null; }
have_clang_runtime() {
    have_command clang && [ -e "$(clang --print-runtime-dir)/libclang_rt.$1-$(uname -m).a" ]
}
have_file() { [ -e "$1" ]; }

# need PACKAGE TEST... - notes the package when the test fails.
need() {
    package=$1
    shift
    "$@" || missing="$missing $package"
}

need_run() {
    need gcc have_command cc
    need libc6-dev have_header stdio.h
    need cmake have_command cmake
    need ninja-build have_command ninja
    need pkg-config have_command pkg-config
    need libjansson-dev have_library jansson
}

need_test() {
    need_run
    need g++ have_command c++
    need python3 have_command python3
    need libcmocka-dev have_library cmocka
}

need_fmt() {
    need clang-format have_command clang-format
}

need_ci() {
    need_test
    need_fmt
    need python3-numpy have_python numpy
    need clang have_command clang
    need libclang-rt-dev have_clang_runtime fuzzer
    need clang-tidy have_command clang-tidy
    need libomp-dev have_file /usr/lib/llvm-14/lib/libomp.so
    need valgrind have_command valgrind
    need gcc-aarch64-linux-gnu have_command aarch64-linux-gnu-gcc
    need libc6-dev-arm64-cross have_file /usr/aarch64-linux-gnu/include/stdio.h
    need qemu-user-static have_command qemu-aarch64-static
}

for what in "$@"; do
    case $what in
    run | test | fmt | ci) "need_$what" ;;
    *)
        echo "setup.sh: knows run, test, fmt and ci, not '$what'" >&2
        exit 2
        ;;
    esac
done
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends$missing"
if ! have_command apt-get; then
    echo "Missing (names of Debian packages):$missing" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "Missing:$missing" >&2
    echo "Install them with:" >&2
    echo "    sudo apt-get update && sudo $install" >&2
    exit 1
fi

log=build/setup.log
mkdir -p build
echo "Installing what is missing (log: $log):$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of words
if ! { apt-get update && $install; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "Installing failed; the whole log is $log. The command was:" >&2
    echo "    apt-get update && $install" >&2
    exit 1
fi
