#!/usr/bin/env python3
"""call_overhead.py [--json FILE] - what a call from Python costs beside the library's own time.

The calls have no tokens, so that the library checks its arguments and returns: what is left is the
way there and back. Results are given and the plan is kept, as in a decode loop. Each number is the
median, and the smallest, of rounds of 1,000 calls, 10,000 at least; rounds of the rows take turns,
because shared machines change their speed from one second to the next. An empty function of Python
stands among the rows as a measure of that, and every row includes it.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time

import megamla

ROUNDS, CALLS, IMPORTS = 40, 1000, 10


def decode_call(torch, compressed):
    """Arguments of a decode call without tokens, and its results."""
    t, heads, k = 0, 64, 128
    bytes_ = lambda format: torch.zeros(4, 64, megamla.kv_bytes(format), dtype=torch.uint8)  # noqa: E731
    given = [torch.zeros(t, heads, 512, dtype=torch.bfloat16), torch.zeros(t, dtype=torch.int32),
             torch.zeros(16, 64), bytes_("v41_fp8"), torch.zeros(t, k, dtype=torch.int32)]
    if compressed:
        given += [torch.zeros(t, dtype=torch.int32), bytes_("v41_fp4"),
                  torch.zeros(t, 512, dtype=torch.int32), torch.zeros(t, dtype=torch.int32)]
    sink = torch.zeros(heads) if compressed else None
    return given, sink, megamla.attend_paged(*given, sink=sink)


def rows(torch):
    import megamla.torch_ops  # noqa: F401  # registers the operators

    op = torch.ops.megamla.attend_paged_out.default
    found = {"an empty function": lambda: None}
    for name, compressed in (("window cache, 8 tensors", False), ("both caches, 13 tensors", True)):
        given, sink, made = decode_call(torch, compressed)
        padded = given + [None] * (9 - len(given))
        found["attend_paged, " + name] = (
            lambda g=given, s=sink, m=made: megamla.attend_paged(
                *g, sink=s, out=m.out, out_scale=m.out_scale, lse=m.lse))
        found["torch.ops.megamla.attend_paged_out, " + name] = (
            lambda g=padded, s=sink, m=made: op(*g, m.out, m.out_scale, m.lse, None, 0.0442, s))
    given, sink, made = decode_call(torch, False)
    numpy = [x.view(torch.int16).numpy() if x.dtype == torch.bfloat16 else x.numpy() for x in given]
    result = megamla.attend_paged(*numpy)
    found["attend_paged, window cache, NumPy"] = lambda: megamla.attend_paged(
        *numpy, out=result.out, out_scale=result.out_scale, lse=result.lse)
    return found


def measure(functions):
    times = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            begin = time.perf_counter()
            for _ in range(CALLS):
                function()
            times[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    return times


def import_ms(statement):
    """Milliseconds of a statement in a new process; its start is not counted."""
    code = ("import time; t = time.perf_counter(); %s; print((time.perf_counter() - t) * 1e3)"
            % statement)
    return [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(IMPORTS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", help="write the numbers to this file")
    arguments = parser.parse_args()
    import torch

    times = measure(rows(torch))
    times = {name + ", us": values for name, values in times.items()}
    times["import megamla, ms"] = import_ms("import megamla")
    times["import megamla, and the first call, ms"] = import_ms(
        'import megamla; megamla.kv_bytes("v4")')
    print("Python %s, PyTorch %s, megamla %s" % (platform.python_version(), torch.__version__,
                                                megamla.__version__))
    print("| call | median | smallest |\n| --- | ---: | ---: |")
    for name, values in times.items():
        print("| %s | %.2f | %.2f |" % (name, statistics.median(values), min(values)))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"python": platform.python_version(), "torch": torch.__version__,
                       "rows": {name: {"median": statistics.median(values), "min": min(values)}
                                for name, values in times.items()}}, file, indent=1)


if __name__ == "__main__":
    main()
