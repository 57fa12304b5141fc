#!/bin/sh
# check_count.sh COUNT_TESTS_AWK - the count of `make test` is right, above all when something fails.
set -eu

count=$1
failed=0

# expect NAME STATUS LINE <ctest output
expect() {
    status=0
    output=$(awk -f "$count") || status=$?
    line=$(echo "$output" | tail -n 1)
    if [ "$line" != "$3" ] || [ "$status" -ne "$2" ]; then
        echo "$1: got '$line', status $status; want '$3', status $2" >&2
        failed=1
    fi
}

expect all_passed 0 "3 passed, 0 failed" <<'E1'
test 1
1: [==========] Running 2 test(s).
1: [ RUN      ] a
1: [       OK ] a
1: [ RUN      ] b
1: [       OK ] b
1: [  PASSED  ] 2 test(s).
1/2 Test #1: x_test ..........   Passed    0.01 sec
2: 12 headers
2/2 Test #2: abi_headers ......   Passed    0.01 sec
E1

expect a_failure_is_named_twice_and_counted_once 1 "1 passed, 1 failed, 1 skipped" <<'E2'
1: [       OK ] a
1: [  FAILED  ] b
1: [  SKIPPED ] c
1: [==========] 3 test(s) run.
1: [  PASSED  ] 1 test(s).
1: [  SKIPPED ] 1 test(s), listed below:
1: [  SKIPPED ] c
1: [  FAILED  ] 1 test(s), listed below:
1: [  FAILED  ] b
1/1 Test #1: x_test ..........***Failed    0.01 sec
E2

expect a_crash_counts_beside_what_had_passed 1 "1 passed, 1 failed" <<'E3'
1: [       OK ] a
1: [ RUN      ] b
1/1 Test #1: x_test ..........***Exception: SegFault  0.01 sec
E3

expect interleaved_programs_are_kept_apart 1 "2 passed, 2 failed" <<'E4'
1: [       OK ] a
2: [       OK ] a
1: [  FAILED  ] b
2: [  FAILED  ] b
2/2 Test #2: y_test ..........***Failed    0.01 sec
1/2 Test #1: x_test ..........***Failed    0.01 sec
E4

expect a_skipped_program_is_no_failure 0 "1 passed, 0 failed, 1 skipped" <<'E5'
1: skipped: NumPy is not installed
1/2 Test #1: samples_check ....***Skipped   0.06 sec
2/2 Test #2: abi_headers ......   Passed    0.01 sec
E5

expect a_test_that_skips_itself_is_neither 0 "1 passed, 0 failed, 1 skipped" <<'E5'
1: skipped: no NumPy
1/2 Test #1: samples_check ..........***Skipped   0.05 sec
2/2 Test #2: abi_headers ......   Passed    0.01 sec
E5

expect nothing_ran 1 "0 passed, 0 failed" </dev/null
exit $failed
