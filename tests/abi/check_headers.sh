#!/bin/sh
# check_headers.sh INCLUDE_DIR CC CXX - every public header compiles alone, in both languages.
set -eu

dir=$1 cc=$2 cxx=$3
failed=0

# check HEADER COMPILER LANGUAGE STANDARD
check() {
    echo "#include <megamla/$1>" |
        "$2" -x "$3" -std="$4" -pedantic -Wall -Wextra -Wshadow -Wconversion -Werror \
            -I"$dir" -fsyntax-only - || {
        echo "megamla/$1 does not compile alone as $4" >&2
        failed=1
    }
}

n=0
for path in "$dir"/megamla/*.h; do
    header=$(basename "$path")
    check "$header" "$cc" c c11
    check "$header" "$cc" c c17
    check "$header" "$cxx" c++ c++17
    n=$((n + 1))
done
echo "$n headers, each as C11, C17 and C++17"
exit $failed
