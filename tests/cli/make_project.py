#!/usr/bin/env python3
"""make_project.py FILE - writes a capture of project: 3 tokens, 1 group. Finite codes, scales near
1, drawn from a fixed seed."""

import random
import sys

from safetensors_file import tensors, write

rng = random.Random(7)


def codes(n):
    return bytes(c if c & 0x7F != 0x7F else 0 for c in rng.randbytes(n))


def scales(n):
    return bytes(rng.randrange(120, 128) for _ in range(n))


T, G = 3, 1
write(sys.argv[1], *tensors([
    ("x", "F8_E4M3", [T, G, 4096], codes(T * G * 4096)),
    ("x_scale", "U8", [T, G, 128], scales(T * G * 128)),
    ("weight", "F8_E4M3", [G, 1024, 4096], codes(G * 1024 * 4096)),
    ("weight_scale", "U8", [G, 1024, 128], scales(G * 1024 * 128)),
], {"megamla": "1", "op": "project"}))
