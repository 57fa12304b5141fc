#!/bin/sh
# check_install.sh BUILD_DIR CC CXX - builds the client against a staged install, moved elsewhere.
set -eu

build=$1 cc=$2 cxx=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Installed under one name and used under another: no file may hold the first.
cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/staged"
libdir=$(dirname "$(find "$work/staged" -name libmegamla.a)")
if grep -rl "$work/first" "$work/staged"; then
    echo "the files above hold the install prefix" >&2
    exit 1
fi
export LD_LIBRARY_PATH="$libdir" PKG_CONFIG_PATH="$libdir/pkgconfig"

soname=$(objdump -p "$libdir/libmegamla.so" | awk '/SONAME/ { print $2 }')
if [ "$soname" != "libmegamla.so.$(pkg-config --modversion megamla | cut -d. -f1,2)" ]; then
    echo "SONAME is '$soname'" >&2
    exit 1
fi

flags="-pedantic -Wall -Wextra -Werror"
client=$here/client.c
# shellcheck disable=SC2046,SC2086 # lists of words
for form in "$cc -x c -std=c17" "$cxx -x c++ -std=c++17"; do
    echo "pkg-config, shared: $form"
    $form $flags $client -x none $(pkg-config --cflags --libs megamla) -o "$work/client"
    "$work/client"
    echo "pkg-config, static: $form"
    # The linker prefers a shared library, so the static one is asked for by its file name.
    $form $flags $client -x none $(pkg-config --static --cflags --libs megamla |
        sed 's/-lmegamla/-l:libmegamla.a/') -o "$work/client"
    LD_LIBRARY_PATH="" "$work/client"
done

echo "find_package"
cmake -S "$here" -B "$work/client-build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_PREFIX_PATH="$work/staged" >"$work/configure.log" || {
    cat "$work/configure.log"
    exit 1
}
cmake --build "$work/client-build" >"$work/build.log" || {
    cat "$work/build.log"
    exit 1
}
for program in c_shared c_static c_megamla cxx_shared cxx_static cxx_megamla; do
    "$work/client-build/$program"
done

# The command is there only when the build has it; then its manual and completion are too.
if [ -e "$work/staged/bin/megamla" ]; then
    LD_LIBRARY_PATH="" "$work/staged/bin/megamla" --version
    for file in share/man/man1/megamla.1 share/bash-completion/completions/megamla; do
        test -s "$work/staged/$file" || {
            echo "$file was not installed" >&2
            exit 1
        }
    done
fi
