#!/bin/sh
# nvcc.sh REPORT STRICT NVCC ARGUMENT... - compiles one .cu file for the build.
#
# The assembler's report on every kernel (registers, stack, spills: pages of it) goes to REPORT,
# where tools/check_ptxas.py reads it. What is left is for the developer and is shown, each line
# once; if STRICT is ON, a warning of the compiler is an error.
set -u

report=$1 strict=$2
shift 2
status=0
"$@" >"$report.tmp" 2>&1 || status=$?
shown=$(awk '/^ptxas info|^ +[0-9]+ bytes stack frame|^$/ { next }
    { sub(/^ptxas [^ ]+, line [0-9]+; /, "ptxas "); if (!seen[$0]++) print }' "$report.tmp")
[ -z "$shown" ] || printf '%s\n' "$shown" >&2
if [ "$strict" = ON ] && printf '%s' "$shown" | grep -v '^ptxas' | grep -q warning; then
    echo "warnings are errors here (MMLA_WERROR)" >&2
    status=1
fi
mv "$report.tmp" "$report"
exit "$status"
