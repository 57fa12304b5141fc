#!/bin/sh
# arm64_sysroot.sh DIR - unpacks the arm64 libraries that the tests need into DIR.
#
# The packages are downloaded with package lists of their own and unpacked, not installed: this
# machine's architectures, lists and packages stay as they are. Does nothing when DIR is complete.
set -eu

dir=$1
packages="libcmocka-dev libcmocka0 libjansson-dev libjansson4"
[ -e "$dir/complete" ] && exit 0
mkdir -p "$dir/lists/partial" "$dir/archives/partial"
dir=$(cd "$dir" && pwd)
: >"$dir/status"

arm64_apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
        -o APT::Sandbox::User=root -o Dir::State="$dir" -o Dir::State::status="$dir/status" \
        -o Dir::Cache="$dir" "$@"
}

arm64_apt update
# shellcheck disable=SC2086 # a list of words
(cd "$dir/archives" && arm64_apt download $packages)
for deb in "$dir"/archives/*.deb; do
    dpkg -x "$deb" "$dir"
done
rm -rf "$dir/lists" "$dir/archives" "$dir"/*.bin
touch "$dir/complete"
