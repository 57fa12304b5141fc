#!/bin/bash
# run_tests.sh BUILD_DIR [CTEST_OPTION...] - runs the tests of a build, shows those that fail, counts.
#
# The last line is "N passed, N failed", and ", N skipped" if any were. It counts test functions: a
# cmocka program by its own lines, any other test as one, a program that died as one failure more.
set -uo pipefail

build=$1
shift
log=$build/tests.log
jobs=$(nproc)

ctest --test-dir "$build" --no-tests=error --verbose --parallel "$jobs" "$@" 2>&1 |
    tee "$log" | grep --line-buffered -E '^ *[0-9]+/[0-9]+ Test +#'
status=${PIPESTATUS[0]}

awk -f "$(dirname "$0")/count_tests.awk" -v show_failures=1 "$log"
counted=$?
[ "$status" -eq 0 ] && [ "$counted" -eq 0 ]
