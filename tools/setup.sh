#!/bin/sh
# setup.sh WHAT... - sees to it that what a build needs is there: run, test, fmt or ci.
#
# Looks for each tool or library itself, not for its package, so whatever way it was installed will
# do. What is missing is installed with apt-get, as root; another user is told the command to run.
#
# The CUDA compiler is in no free package of Debian. A build does without it; ci does not, and gets
# it from PyPI, into build/cuda-toolkit, where cmake/cuda.cmake looks last.
set -eu

missing=""
toolkit=build/cuda-toolkit
toolkit_packages="nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \
nvidia-cuda-runtime==13.0.96"
nvcc_wanted=no

have_command() { command -v "$1" >/dev/null 2>&1; }
have_library() { have_command pkg-config && pkg-config --exists "$1"; }
have_header() { have_command cc && echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1; }
have_python() { have_command python3 && python3 -c "import $1" 2>/dev/null; }
have_clang_runtime() {
    have_command clang && [ -e "$(clang --print-runtime-dir)/libclang_rt.$1-$(uname -m).a" ]
}
have_file() { [ -e "$1" ]; }
have_nvcc() {
    for nvcc in nvcc "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc \
        "$toolkit/nvidia/cu13/bin/nvcc"; do
        if "$nvcc" --version >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}

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
    need make have_command make
    need git have_command git
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
    need python3-venv have_python ensurepip
    need ca-certificates have_file /etc/ssl/certs/ca-certificates.crt
    if ! have_nvcc; then
        nvcc_wanted=yes
    fi
}

install_missing() {
    install="apt-get install -y --no-install-recommends$missing"
    if ! have_command apt-get; then
        echo "Missing (names of Debian packages):$missing" >&2
        return 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "Missing:$missing" >&2
        echo "Install them with:" >&2
        echo "    sudo apt-get update && sudo $install" >&2
        return 1
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
        return 1
    fi
}

# nvcc, its device compiler, its headers and the runtime: 100 MB to fetch, 260 MB unpacked.
install_nvcc() {
    log=build/setup_nvcc.log
    mkdir -p build
    echo "Installing the CUDA compiler into $toolkit (log: $log)"
    rm -rf "$toolkit"
    # shellcheck disable=SC2086 # a list of words
    if ! { python3 -m venv build/cuda-venv && build/cuda-venv/bin/pip install --no-deps \
        --only-binary :all: --target "$toolkit" $toolkit_packages; } >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -rf "$toolkit" build/cuda-venv
        echo "Missing: nvcc, the CUDA compiler. These packages could not be had from PyPI:" >&2
        echo "    $toolkit_packages" >&2
        echo "Any CUDA toolkit of 12.0 or later will do: put its nvcc into PATH. Log: $log" >&2
        return 1
    fi
    rm -rf build/cuda-venv
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

if [ -n "$missing" ]; then
    install_missing
fi
if [ $nvcc_wanted = yes ]; then
    install_nvcc
fi
