# count_tests.awk - counts test functions in the output of `ctest --verbose`.
#
# ctest puts "12: " before each line of test 12 and closes it with a line like
# "3/40 Test #12: attend_test ....   Passed    0.12 sec". With show_failures=1 the output of failed
# tests is printed. Exit status 1 when something failed or nothing ran.

/^[0-9]+: / {
    id = $1
    sub(/:$/, "", id)
    line = $0
    sub(/^[0-9]+: /, "", line)
    output[id] = output[id] line "\n"
    if (line ~ /^\[       OK \] /) {
        n_ok[id]++
        cmocka[id] = 1
    } else if (line ~ /^\[  SKIPPED \] / && line !~ / test\(s\)/) {
        if (!seen[id, line]++) {
            n_skipped[id]++
        }
        cmocka[id] = 1
    } else if (line ~ /^\[  FAILED  \] / && line !~ / test\(s\)/) {
        # Named where it fails and again at the end.
        if (!seen[id, line]++) {
            n_failed[id]++
        }
        cmocka[id] = 1
    }
}

/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
    id = $0
    sub(/^[^#]*#/, "", id)
    sub(/:.*/, "", id)
    ran++
    good = / Passed +[0-9.]+ sec/
    if (/\*\*\*Skipped +[0-9.]+ sec/) { # a program that says the machine lacks what it needs
        skipped++
        next
    }
    if (!cmocka[id]) {
        passed += good
        failed += !good
    } else {
        passed += n_ok[id]
        skipped += n_skipped[id]
        failed += n_failed[id]
        if (!good && n_failed[id] == 0) {
            failed++
        }
    }
    if (!good && show_failures) {
        printf "\n%s\n%s", $0, output[id]
    }
}

END {
    printf "%d passed, %d failed", passed, failed
    if (skipped > 0) {
        printf ", %d skipped", skipped
    }
    printf "\n"
    exit failed > 0 || ran == 0
}
