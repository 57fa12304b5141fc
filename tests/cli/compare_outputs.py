#!/usr/bin/env python3
"""compare_outputs.py OUTPUT EXPECTED - an output file of `megamla run` against the expected one.

Shapes and dtypes must agree, and bytes too where the operation has only one right answer; numbers
of the attention are held against each other elsewhere (capture_golden_test)."""

import sys

from safetensors_file import read

meta, got = read(sys.argv[1])
expected_meta, want = read(sys.argv[2])
problems = []
if meta.get("op") != expected_meta["op"] or meta.get("device") != "cpu":
    problems.append(f"metadata is {meta}")
if "implementation" not in meta or not float(meta.get("elapsed_us", "-1")) >= 0:
    problems.append(f"metadata lacks implementation or elapsed_us: {meta}")
if list(got) != list(want):
    problems.append(f"tensors are {list(got)}, must be {list(want)}")
for name in got.keys() & want.keys():
    if got[name][:2] != want[name][:2]:
        problems.append(f"{name} is {got[name][:2]}, must be {want[name][:2]}")
    elif not meta["op"].startswith("attend") and got[name][2] != want[name][2]:
        problems.append(f"{name} has other bytes")
print("\n".join(problems), end="\n" if problems else "")
sys.exit(1 if problems else 0)
