#!/bin/sh
# check_static.sh LIBRARY CC INCLUDE_DIR [CUDART] - the static library can join any program.
#
# All its global names begin with mmla_, the internal ones too. If it holds NVIDIA's runtime, a program
# with a runtime of its own, CUDART, links and runs as well.
set -eu

library=$1 cc=$2 include=$3 cudart=${4:-}
if nm -g --defined-only "$library" | awk 'NF == 3 { print $3 }' | grep -v '^mmla_'; then
    echo "the symbols above do not begin with mmla_" >&2
    exit 1
fi
[ -n "$cudart" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cc" -std=c17 -I"$include" "$(dirname "$0")/../install/client.c" -Wl,--whole-archive "$cudart" \
    -Wl,--no-whole-archive "$library" -fopenmp -lpthread -ldl -lrt -lm -o "$work/client"
"$work/client"
