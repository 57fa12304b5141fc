#!/usr/bin/env python3
"""check_memory.py MEGAMLA SOURCE_DIR - legal captures that ask for much: what running them takes.

Each is small and runs, the fused call needs little for it, and the unfused chain beside it would
need hundreds of times the file. The command must leave the chain out and say so, in text and JSON,
and stay below a limit of resident memory.
"""

import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile

from safetensors_file import read, tensors, write

MEGAMLA = os.path.abspath(sys.argv[1])
SOURCE = pathlib.Path(sys.argv[2]).resolve()
RESIDENT_LIMIT = 64 << 20
WIDTH = 300000


def wide(n_tokens):
    """attend_rows with n_tokens tokens and a list of WIDTH entries, a few of them keys."""
    def make(path):
        meta, parts = read(SOURCE / "examples" / "captures" / "attend_rows.safetensors")
        for name, (dtype, shape, data) in parts.items():
            if name in ("q", "positions"):
                size = len(data) // shape[0]
                parts[name] = (dtype, [n_tokens] + shape[1:], data[:size * n_tokens])
        row = struct.pack("<3i", 0, 1, 2) + b"\xff" * 4 * (WIDTH - 3)
        parts["list"] = ("I32", [n_tokens, WIDTH], row * n_tokens)
        parts.pop("lens", None)
        write(path, *tensors([(n, *p) for n, p in parts.items()], meta))
    return make


CASES = [
    ("no_token", wide(0), "there is no token"),
    ("wide_list", wide(1), "out of proportion to the file"),
]


def problem_of(path, words, *options):
    run = subprocess.run([MEGAMLA, "run", path, "--repeat", "1", *options], timeout=60,
                         stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if run.returncode != 0 or run.stderr:
        return f"exit status {run.returncode}: {run.stderr}"
    said = json.loads(run.stdout).get("chain_not_timed", "") if options else run.stdout
    return None if words in said else f"{words!r} is not in {said!r}"


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make, words in CASES:
            path = pathlib.Path(folder) / f"{name}.safetensors"
            make(path)
            for options in ((), ("--json",)):
                problem = problem_of(str(path), words, *options)
                if problem:
                    failed += 1
                    print(f"FAIL {name} {' '.join(options)}: {problem}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"{len(CASES)} files, {failed} failed, at most {peak >> 20} MiB resident")
    return 1 if failed or peak > RESIDENT_LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
