#!/bin/sh
# check_drivers.sh MEGAMLA CC - what the command says when the driver is too old, has no device or
# does not start: a sentence each, and no failure of its own.
set -eu

megamla=$1 cc=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cc" -shared -fPIC -o "$work/libcuda.so.1" "$(dirname "$0")/fake_driver.c"

failed=0
# expect KIND PATTERN - the line of the first CUDA device matches.
expect() {
    line=$(FAKE_DRIVER=$1 LD_LIBRARY_PATH=$work "$megamla" info | grep '^  cuda:0')
    # shellcheck disable=SC2254 # a pattern is meant
    case $line in
    "  cuda:0     not available: "$2) ;;
    *)
        echo "driver $1: $line" >&2
        failed=1
        ;;
    esac
}
expect old "the NVIDIA driver supports CUDA 11.4, and this library was built with *.*"
expect empty "the NVIDIA driver finds no device"
expect broken "CUDA does not start: * (cudaErrorUnknown)"
exit $failed
