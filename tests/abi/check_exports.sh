#!/bin/sh
# check_exports.sh LIBRARY LIST - the library exports exactly the symbols of LIST.
#
# A symbol that left is an interface broken; one that came must be meant. After a deliberate change:
#     nm -D --defined-only LIBRARY | awk '{ print $3 }' | LC_ALL=C sort > tests/abi/exports.txt
set -eu

found=$(mktemp)
trap 'rm -f "$found"' EXIT
nm -D --defined-only "$1" | awk '{ print $3 }' | LC_ALL=C sort >"$found"

if grep -v '^mmla_' "$found"; then
    echo "the symbols above do not begin with mmla_" >&2
    exit 1
fi
if ! diff -u "$2" "$found"; then
    echo "the exported symbols differ: - is missing from the library, + is not in the list" >&2
    exit 1
fi
echo "$(wc -l <"$found") symbols, as listed"
