#!/bin/sh
# run_cases.sh MEGAMLA SOURCE_DIR [PATTERN] - runs the cases of the command line.
#
# A case is <command>/<case>.sh, run in an empty folder with MEGAMLA and SRC set. Beside it stand
#     <case>.exit          the exit status, 0 when the file is missing
#     <case>.stdout.exact  all of standard output; or
#     <case>.stdout.glob   line by line, shell patterns; a last line "..." stands for any rest
#     <case>.stderr.glob   likewise
# An output without a file must be empty.
set -u

MEGAMLA=$(realpath "$1") SRC=$(realpath "$2") pattern=${3:-}
export MEGAMLA SRC
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Does file $2, what a case printed, match the patterns of file $1?
matches() {
    exec 3<"$1" 4<"$2"
    while IFS= read -r want <&3; do
        if [ "$want" = "..." ]; then
            return 0
        fi
        IFS= read -r got <&4 || return 1
        # shellcheck disable=SC2254 # a pattern is meant
        case $got in
        $want) ;;
        *)
            echo "    no match for: $want"
            return 1
            ;;
        esac
    done
    ! IFS= read -r got <&4
}

passed=0 failed=0
for script in "$here"/*/*"$pattern"*.sh; do
    case=${script%.sh}
    rm -rf "$work/in"
    mkdir "$work/in"
    (cd "$work/in" && sh "$script") >"$work/stdout" 2>"$work/stderr"
    status=$?
    wanted=0
    [ -f "$case.exit" ] && wanted=$(cat "$case.exit")
    why=
    [ "$status" -eq "$wanted" ] || why="exit status is $status, must be $wanted"
    for stream in stdout stderr; do
        if [ -f "$case.$stream.exact" ]; then
            cmp -s "$case.$stream.exact" "$work/$stream" || why="$why; $stream differs"
        elif [ -f "$case.$stream.glob" ]; then
            matches "$case.$stream.glob" "$work/$stream" || why="$why; $stream differs"
        elif [ -s "$work/$stream" ]; then
            why="$why; $stream is not empty"
        fi
    done
    if [ -z "$why" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL ${case#"$here"/}: ${why#; }"
        sed 's/^/    stdout: /' "$work/stdout"
        sed 's/^/    stderr: /' "$work/stderr"
    fi
done
echo "$passed cases passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
