#!/usr/bin/env python3
"""make_corpus.py - writes the hand-made seeds of fuzz_attend_plan: descriptions that are legal, so
that the fuzzer starts behind the checks. Run it from fuzz/ after a field moved in the target."""
import pathlib

# Places of numbers in the table of take.h.
N = {n: i for i, n in enumerate([0, 1, 2, 8, 16, 32, 61, 64, 127, 128, 129, 512, 1024, 4096, 65535,
                                 65536, 65537, 2 ** 31 - 1, -1, -8, 1000])}
SCALE, EPS = 1, 2  # places of 512^-0.5 and 1e-6 in the table of floats


def cache(form, page_tokens=64, n_pages=1000):
    return [form, N[page_tokens], N[n_pages], N[0]]


def attend(heads, out_form, window, compressed, kind=0, op=0):
    width = N[0] if compressed[0] == 0 else N[512]
    return [op, kind, N[heads], N[1000], SCALE, 1, out_form, N[128], N[4096], *window, *compressed,
            width, N[4096] if kind else N[0], 0, 0, N[1], EPS]


def prefill(route, window, compressed, ratio, tokens=1000):
    topk, table = (N[0], N[0]) if ratio == 0 else (N[512], N[64])
    return [7, route, N[8], N[128], N[ratio], topk, N[0], N[64], N[0], table, N[0], N[4096],
            0, N[64], N[tokens], SCALE, 1, 0, N[0], N[4096], *window, *compressed]


V4, FP8, FP4 = cache(1), cache(2), cache(3)
NONE = [0, N[0], N[0], N[0]]
SEEDS = {
    "attend_v4": attend(64, 0, V4, V4),
    "attend_v41": attend(128, 1, FP8, FP4),
    "attend_window_only": attend(8, 2, FP8, NONE),
    "attend_bf16": attend(16, 3, FP4, FP4),
    "attend_rows": attend(64, 0, NONE, NONE, kind=1),
    "chain_v41": attend(64, 0, FP8, FP4, op=1),
    "chain_most_tokens": [1, 0, N[128], N[2 ** 31 - 1], SCALE, 0, 3, N[1], N[1], *FP8, *NONE],
    "kv_insert": [2, *FP8, N[1000], N[4096], N[0], N[2], 1, N[1], EPS],
    "kv_insert_index": [2, *cache(4), N[1000], N[4096]],
    "kv_insert_wrap": [2, 1, N[65536], N[2 ** 31 - 1], N[0], N[1000], N[4096]],
    "kv_gather": [3, *V4, N[1000], N[129], N[4096], N[128]],
    "kv_gather_records": [3, *FP4, N[1000], N[129], N[4096], N[0], N[0], N[0], 0, N[2]],
    "kv_gather_window": [3, *FP8, N[1000], N[129], N[4096], N[128], N[0], N[0], 0, N[1], N[128]],
    "list_window": [4, 0, N[1000], N[64], N[128], N[64], N[1000], N[512], N[128]],
    "list_draft": [4, 1, N[1000], N[64], N[128], N[64], N[1000], N[512], N[512]],
    "list_compressed": [4, 2, N[1000], N[64], N[0], N[64], N[1000], N[512], N[512], N[512]],
    "list_combined": [4, 3, N[1000], N[64], N[128], N[0], N[0], N[0], N[1024], N[512], N[2],
                      N[512], N[4096], N[1024]],
    "list_compressed_slots": [4, 4, N[1000], N[64], N[0], N[64], N[1000], N[512], N[0], N[0], N[2]],
    "list_ring_slots": [4, 5, N[1000], N[64], N[0], N[128], N[1000], N[0]],
    "list_image_spans": [4, 6, N[1000], N[64]] + [N[0]] * 9 + [N[1024]],
    "weights_wq_b": [5, 0, N[64], N[0], N[1024], N[32]],
    "weights_wo_a": [5, 1, N[0], N[1024], N[0], N[0]],
    "weights_scales": [5, 2, N[0], N[1024], N[0], N[32]],
    "weights_q": [5, 3, N[64], N[1000]],
    "project": [6, N[8], N[1000], N[0]],
    "project_bytes": [6, N[1], N[2 ** 31 - 1], N[1024], 1],
    "prefill_paged": prefill(1, FP8, FP4, 2),
    "prefill_workspace": prefill(2, V4, V4, 1),
    "prefill_window_only": prefill(2, FP8, NONE, 0),
    "prefill_most_tokens": prefill(2, FP8, FP4, 2, 2 ** 31 - 1),
    "raw": [0] + [0xFF, 1, 2, 3, 4, 5, 6, 7, 8] * 12,
    "empty": [],
}

folder = pathlib.Path("corpus/fuzz_attend_plan")
folder.mkdir(parents=True, exist_ok=True)
for name, seed in SEEDS.items():
    (folder / ("seed_" + name)).write_bytes(bytes(seed))
