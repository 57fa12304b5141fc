#!/usr/bin/env python3
"""numpy_chain.py - the attention of one layer by separate steps, as one would write it in NumPy.

A baseline for docs/performance.md: the steps of `chain` (include/megamla/chain.h) on the same
shapes, each one or a few whole-array operations in float32, matrix products by NumPy's BLAS.
Records are 528-byte (window) and 288-byte (compressed) rows without their pages: rows of codes and
rows of scales.

    python3 tools/numpy_chain.py                       64 heads, 128 + 512 keys, 16 tokens
    OPENBLAS_NUM_THREADS=1 python3 tools/numpy_chain.py

prints CSV: the median, tenth and ninetieth percentile of the time of one token, in microseconds, a
step and in total. The last token's output is compared with float64 first.
"""

import argparse
import sys
import time

import numpy as np

D, ROPE, CHUNK = 512, 64, 32
STEPS = ["rope_q", "dequantise", "scores", "softmax", "values", "unrope", "quantise"]


def f32(bits):
    return np.asarray(bits, np.uint32).view(np.float32)


def e4m3_table():
    """The value of every e4m3 code; 0x7F and 0xFF are NaN."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    value = np.where(exponent > 0, (8 + mantissa) * 2.0 ** (exponent - 10), mantissa * 2.0**-9)
    value[(code & 127) == 127] = np.nan
    return np.where(code & 128, -value, value).astype(np.float32)


E4M3 = e4m3_table()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate([E2M1, -E2M1])


def bf16(x):
    """Rounded to the nearest bf16, ties to even; x has no NaN."""
    u = x.view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def rotate(x, cos, sin):
    """The last 64 dims of every row, in adjacent pairs."""
    y = x.copy()
    even, odd = x[:, -ROPE::2], x[:, -ROPE + 1 :: 2]
    y[:, -ROPE::2] = even * cos - odd * sin
    y[:, -ROPE + 1 :: 2] = even * sin + odd * cos
    return bf16(y)


def dequantise_fp8(codes, scales):
    factors = f32(scales.astype(np.uint32) << 23)
    return (E4M3[codes].reshape(-1, 16, 32) * factors[:, :, None]).reshape(-1, D)


def dequantise_fp4(codes, scales):
    nibbles = np.stack([codes & 15, codes >> 4], axis=-1).reshape(-1, 32, 16)
    return (E2M1[nibbles] * E4M3[scales][:, :, None]).reshape(-1, D)


def quantise(o):
    """e4m3 codes and ue8m0 bytes, 32 dims each: the least power of two that holds the maximum."""
    chunks = o.reshape(-1, CHUNK)
    amax = np.maximum(np.abs(chunks).max(axis=1), np.float32(1e-4))
    byte = ((amax / np.float32(448)).view(np.uint32) - 1 >> 23) + 1
    x = chunks * f32((254 - byte) << 23)[:, None]
    u = x.view(np.uint32)
    a, m = np.abs(x), u & 0x7FFFFFFF
    normal = (m + 0x7FFFF + ((m >> 20) & 1) >> 20) - 960
    subnormal = (a + np.float32(2**14)).view(np.uint32) & 0xFF
    code = np.where(a < 2.0**-6, subnormal, np.minimum(normal, 0x7E)) | (u >> 24) & 0x80
    return code.astype(np.uint8), byte.astype(np.uint8)


def make_inputs(rng, heads, tokens, window, compressed):
    """Pools of 4096 records each, and for every token q, two lists and a position."""
    pool = 4096
    finite = np.array([c for c in range(256) if c & 127 != 127], np.uint8)
    angle = np.outer(np.arange(1024), 160000.0 ** (-np.arange(0, ROPE, 2) / ROPE))
    return {
        "window": (rng.choice(finite, (pool, D)), rng.integers(116, 121, (pool, 16), np.uint8)),
        "compressed": (
            rng.integers(0, 256, (pool, D // 2), np.uint8),
            rng.integers(0x20, 0x30, (pool, 32), np.uint8),
        ),
        "cos": np.cos(angle).astype(np.float32),
        "sin": np.sin(angle).astype(np.float32),
        "position": rng.integers(0, 1024, tokens),
        "q": bf16(rng.standard_normal((tokens, heads, D), np.float32)),
        "sink": rng.standard_normal(heads).astype(np.float32),
        "lists": [rng.integers(0, pool, (tokens, n)) for n in (window, compressed)],
    }


def chain(x, t, clock):
    """All steps of token t; clock(step) is called after each."""
    cos, sin = x["cos"][x["position"][t]], x["sin"][x["position"][t]]
    q = rotate(x["q"][t], cos, sin)
    clock("rope_q")
    window, compressed = x["lists"][0][t], x["lists"][1][t]
    rows = np.concatenate([
        dequantise_fp8(x["window"][0][window], x["window"][1][window]),
        dequantise_fp4(x["compressed"][0][compressed], x["compressed"][1][compressed]),
    ])
    clock("dequantise")
    s = (q @ rows.T) * np.float32(D**-0.5)
    clock("scores")
    m = s.max(axis=1, keepdims=True)
    e = np.exp(s - m)
    p = e / (e.sum(axis=1, keepdims=True) + np.exp(x["sink"][:, None] - m))
    clock("softmax")
    o = bf16(p @ rows)
    clock("values")
    o = rotate(o, cos, -sin)
    clock("unrope")
    result = quantise(o)
    clock("quantise")
    return q, rows, o, result


def check(x, t, q, rows, o, result):
    """The output against float64: o within a bf16 step, the codes within half an e4m3 step of o."""
    s = q.astype(np.float64) @ rows.T.astype(np.float64) * D**-0.5
    e = np.exp(s - s.max(axis=1, keepdims=True))
    sink = np.exp(x["sink"][:, None] - s.max(axis=1, keepdims=True))
    p = e / (e.sum(axis=1, keepdims=True) + sink)
    want = p @ rows
    cos, sin = (x[name][x["position"][t]].astype(np.float64) for name in ("cos", "sin"))
    even, odd = want[:, -ROPE::2].copy(), want[:, -ROPE + 1 :: 2].copy()
    want[:, -ROPE::2] = even * cos + odd * sin
    want[:, -ROPE + 1 :: 2] = odd * cos - even * sin
    largest = np.abs(want).max(axis=1, keepdims=True)
    assert (np.abs(o - want) <= 2.0**-7 * largest).all(), "o differs from float64"
    back = E4M3[result[0]] * f32(result[1].astype(np.uint32) << 23)[:, None]
    chunks = o.reshape(-1, CHUNK)
    least = 2.0 ** (result[1].astype(float) - 137)  # half of 2^-9 under the scale
    half_step = np.maximum(np.abs(chunks) * 2.0**-4, least[:, None])
    assert (np.abs(back - chunks) <= half_step).all(), "codes differ from o"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--heads", type=int, default=64)
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--compressed", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=20251)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    x = make_inputs(rng, args.heads, args.tokens, args.window, args.compressed)

    samples = {step: [] for step in STEPS}
    for i in range((args.repeats + 1) * args.tokens):
        last = [time.perf_counter()]
        times = {}

        def clock(step):
            now = time.perf_counter()
            times[step] = now - last[0]
            last[0] = now

        outcome = chain(x, i % args.tokens, clock)
        if i >= args.tokens:  # the first round warms up
            for step in STEPS:
                samples[step].append(times[step] * 1e6)
    check(x, args.tokens - 1, *outcome)

    samples["total"] = np.sum([samples[step] for step in STEPS], axis=0)
    shape = f"{args.heads} heads, {args.window} + {args.compressed} keys, {args.tokens} tokens"
    print(f"# numpy {np.__version__}, {shape}, seed {args.seed}")
    print("step,median_us,p10_us,p90_us")
    for step in STEPS + ["total"]:
        middle, low, high = np.percentile(samples[step], [50, 10, 90])
        print(f"{step},{middle:.1f},{low:.1f},{high:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
