#!/bin/bash
# The C block of README.md compiles as it stands, with warnings as errors.
# usage: readme_example.sh COMPILER
set -euo pipefail
cd "$(dirname "$0")/../.."
block=$(sed -n '/^```c$/,/^```$/{/^```/d;p}' README.md)
[ -n "$block" ] || { echo "README.md has no C block"; exit 1; }
printf '%s\n' "$block" | "$1" -std=c17 -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c -
