#!/usr/bin/env python3
"""call_overhead.py [--device cuda] [--json FILE] - what a call from Python costs beside the library.

The calls have no tokens, so that the library checks its arguments and returns: what is left is the
way there and back. Results are given and the plan is kept, as in a decode loop. Each number is the
median, and the smallest, of rounds of 1,000 calls, 10,000 at least; rounds of the rows take turns,
because shared machines change their speed from one second to the next. An empty function of Python
stands among the rows as a measure of that, and every row includes it. Tensors of a GPU cost more than
those of a CPU: a call looks for the current stream and takes a workspace from PyTorch's allocator.
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


def functions(torch):
    """Calls as they are written in a decode loop, by what they are; NumPy's are always of the host."""
    import megamla.torch_ops  # noqa: F401  # registers the operators

    op = torch.ops.megamla.attend_paged_out.default
    t, heads = 0, 64
    q, positions = torch.zeros(t, heads, 512, dtype=torch.bfloat16), torch.zeros(t, dtype=torch.int32)
    cos_sin, sink = torch.zeros(16, 64), torch.zeros(heads)
    window = torch.zeros(4, 64, megamla.kv_bytes("v41_fp8"), dtype=torch.uint8)
    other = torch.zeros(4, 64, megamla.kv_bytes("v41_fp4"), dtype=torch.uint8)
    list_, lens = torch.zeros(t, 128, dtype=torch.int32), torch.zeros(t, dtype=torch.int32)
    topk, n_topk = torch.zeros(t, 512, dtype=torch.int32), torch.zeros(t, dtype=torch.int32)
    out, out_scale, lse, _ = megamla.attend_paged(q, positions, cos_sin, window, list_)
    n_q, n_positions, n_cos_sin, n_window, n_list = (
        x.cpu().numpy() for x in (q.view(torch.int16), positions, cos_sin, window, list_))
    made = megamla.attend_paged(n_q, n_positions, n_cos_sin, n_window, n_list)
    return {
        "an empty function": lambda: None,
        "attend_paged, window cache, 8 tensors": lambda: megamla.attend_paged(
            q, positions, cos_sin, window, list_, out=out, out_scale=out_scale, lse=lse),
        "attend_paged, both caches, 13 tensors": lambda: megamla.attend_paged(
            q, positions, cos_sin, window, list_, lens, other, topk, n_topk, sink=sink, out=out,
            out_scale=out_scale, lse=lse),
        "the operator, window cache, 8 tensors": lambda: op(
            q, positions, cos_sin, window, list_, None, None, None, None, out, out_scale, lse, None,
            0.0442, None),
        "the operator, both caches, 13 tensors": lambda: op(
            q, positions, cos_sin, window, list_, lens, other, topk, n_topk, out, out_scale, lse, None,
            0.0442, sink),
        "an empty operator of 13 tensors": lambda nothing=empty_operator(torch): nothing(
            q, positions, cos_sin, window, list_, lens, other, topk, n_topk, out, out_scale, lse, None,
            0.0442, sink),
        "attend_paged, window cache, NumPy": lambda: megamla.attend_paged(
            n_q, n_positions, n_cos_sin, n_window, n_list, out=made.out, out_scale=made.out_scale,
            lse=made.lse),
    }


def empty_operator(torch):
    """An operator of Python with the arguments of attend_paged_out, which does nothing."""
    library = torch.library.Library("megamla_bench", "DEF")
    library.define("nothing(Tensor q, Tensor p, Tensor c, Tensor w, Tensor l, Tensor? n, Tensor? x, "
                   "Tensor? k, Tensor? m, Tensor(a!) o, Tensor(b!)? s, Tensor(c!)? e, Tensor(d!)? a, "
                   "float f, Tensor? i) -> ()")
    library.impl("nothing", lambda *given: None, "CompositeExplicitAutograd")
    empty_operator.library = library  # lives as long as its operator is called
    return torch.ops.megamla_bench.nothing.default


def measure(calls):
    times = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, function in calls.items():
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
    parser.add_argument("--device", default="cpu", help="where PyTorch's tensors are (cpu)")
    parser.add_argument("--json", help="write the numbers to this file")
    arguments = parser.parse_args()
    import torch

    with torch.device(arguments.device):
        calls = functions(torch)
    times = measure(calls)
    times = {name + ", us": values for name, values in times.items()}
    times["import megamla, ms"] = import_ms("import megamla")
    times["import megamla, and the first call, ms"] = import_ms(
        'import megamla; megamla.kv_bytes("v4")')
    print("Python %s, PyTorch %s, tensors on %s, megamla %s" % (
        platform.python_version(), torch.__version__, arguments.device, megamla.__version__))
    print("| call | median | smallest |\n| --- | ---: | ---: |")
    for name, values in times.items():
        print("| %s | %.2f | %.2f |" % (name, statistics.median(values), min(values)))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"python": platform.python_version(), "torch": torch.__version__,
                       "device": arguments.device,
                       "rows": {name: {"median": statistics.median(values), "min": min(values)}
                                for name, values in times.items()}}, file, indent=1)


if __name__ == "__main__":
    main()
