#!/usr/bin/env python3
"""make_capture.py - makes the sample captures, and what replaying them must give.

    python3 tools/make_capture.py             rewrites examples/ and tests/golden/captures/
    python3 tools/make_capture.py --check     says which files differ from what it would write

Needs NumPy. Everything is drawn from --seed with NumPy's frozen generator, so the files come out
the same everywhere. docs/captures.md describes the files; capture_oracle.py has the arithmetic.

examples/mixed_batch.safetensors is a decode step as a server batches it: one layer of ratio 2, 64
heads, twelve tokens. Requests have 1, 2, 127, 128, 129, 200, 640, 1000 and 5000 tokens; the last
two each come with a draft token, so 1001 and 5001 are there too; the twelfth row is padding of a
captured graph. Windows lie in 528-byte records, pages of 32; compressed records in 288 bytes, pages
of 64. Only pages that a list names are in the file, and every record that no list names is NaN. The
tokens of 5000 pick their 512 records from ten pages, to keep the file below 2 MiB.
"""

import argparse
import json
import pathlib
import struct
import sys

import numpy as np

import capture_oracle as oracle
from capture_oracle import D, Cache, bf16_bits, bf16_round

SCALE = 512 ** -0.5
DTYPES = {"uint8": "U8", "int32": "I32", "int64": "I64", "float32": "F32"}
ROOT = pathlib.Path(__file__).resolve().parent.parent


class Bf16(np.ndarray):
    """uint16 bits that are bf16, so that the file says so."""


class E4m3(np.ndarray):
    """uint8 codes that are e4m3."""


def bf16(x):
    return bf16_bits(x).view(Bf16)


def file_bytes(tensors, meta):
    """A safetensors file, tensors aligned as far as their order allows."""
    header, at, parts = {"__metadata__": meta}, 0, []
    for name, t in tensors.items():
        dtype = {Bf16: "BF16", E4m3: "F8_E4M3"}.get(type(t)) or DTYPES[t.dtype.name]
        raw = np.ascontiguousarray(t).tobytes()
        header[name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        parts.append(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def capture(op, tensors, **attrs):
    meta = {"megamla": "1", "op": op}
    meta.update({k.replace("__", "."): str(v) for k, v in attrs.items()})
    return file_bytes(tensors, meta)


def golden(op, tensors):
    return file_bytes(tensors, {"op": op})


class Latents:
    """Rows as they leave the normalisation: neighbours resemble each other, channels have their own
    sizes, some channels are large. Row of a position is the same whenever it is asked for."""

    def __init__(self, rng):
        self.mix = rng.standard_normal((24, D))
        self.weight = np.exp(0.35 * rng.standard_normal(D))
        self.weight[rng.choice(D, 6, replace=False)] *= 4
        self.topics = rng.standard_normal((4096, 24))
        self.seed = int(rng.randint(1 << 30))

    def row(self, request, position):
        rng = np.random.RandomState((self.seed + 7919 * request + int(position)) % (1 << 32))
        topic = sum(self.topics[(request * 97 + position // k) % 4096] for k in (1, 7, 61))
        x = topic @ self.mix / 8 + rng.standard_normal(D)
        return bf16_round((x / np.sqrt((x * x).mean()) * self.weight).astype(np.float32))


class Pool:
    """Pages of a cache, handed out in a shuffled order, as after some hours of serving."""

    def __init__(self, rng, fmt, page_tokens, n_pages):
        self.cache = Cache(fmt, page_tokens, n_pages)
        self.free = list(rng.permutation(n_pages))
        self.tables = {}

    def slot(self, request, position):
        page = (request, position // self.cache.page_tokens)
        if page not in self.tables:
            self.tables[page] = int(self.free.pop())
        return self.tables[page] * self.cache.page_tokens + position % self.cache.page_tokens


def draw_queries(rng, key_rows, n_heads):
    """q that finds something: noise, and for each head a share of a few of the rows attended to."""
    q = rng.standard_normal((n_heads, D))
    for h in range(n_heads):
        for j in rng.randint(len(key_rows), size=2):
            q[h] += 0.2 * rng.standard_normal() * key_rows[j]
    return bf16_round(q.astype(np.float32))


# ---- the mixed batch -----------------------------------------------------------------------------

MIXED_CONTEXTS = [(0, 1), (1, 2), (2, 127), (3, 128), (4, 129), (5, 200), (6, 640), (7, 1000),
                  (7, 1001), (8, 5000), (8, 5001)]  # (request, tokens)
MIXED_HEADS, WINDOW, TOPK = 64, 128, 512
WINDOW_PAGE, COMPRESSED_PAGE, RATIO = 32, 64, 2


def mixed_picks(rng, context):
    """Compressed positions the indexer picked: all that are visible, or 512 from ten pages."""
    visible = context // RATIO
    if visible <= TOPK:
        return np.arange(visible)
    pages = np.sort(np.append(np.random.RandomState(3).choice(visible // COMPRESSED_PAGE, 9,
                                                              replace=False),
                              (visible - 1) // COMPRESSED_PAGE))
    near = np.concatenate([np.arange(p * COMPRESSED_PAGE, (p + 1) * COMPRESSED_PAGE)
                           for p in pages])
    return np.sort(rng.choice(near[near < visible], TOPK, replace=False))


def mixed_batch(seed):
    rng = np.random.RandomState(seed)
    latents = Latents(rng)
    windows = Pool(rng, "v41_fp8", WINDOW_PAGE, 34)
    compressed = Pool(rng, "v41_fp4", COMPRESSED_PAGE, 29)
    n = len(MIXED_CONTEXTS) + 1
    lists = np.full((n, WINDOW), -1, np.int32)
    picks = np.full((n, TOPK), -1, np.int32)
    q = np.zeros((n, MIXED_HEADS, D), np.float32)
    stored = set()

    def store(pool, request, row, position, slot):
        """One record, once: draft tokens share their request's."""
        if (id(pool), slot) not in stored:
            stored.add((id(pool), slot))
            turned = oracle.rotate(row, oracle.rope_table([position], RATIO)[0])
            pool.cache.store(slot, bf16_round(turned))

    for t, (request, context) in enumerate(MIXED_CONTEXTS):
        rows = []
        first = max(context - WINDOW, 0)
        for k, p in enumerate(range(first, context)):
            lists[t, k] = windows.slot(request, p)
            rows.append(latents.row(request, p))
            store(windows, request, rows[-1], p, lists[t, k])
        for k, j in enumerate(mixed_picks(rng, context)):
            picks[t, k] = compressed.slot(request, j)
            rows.append(latents.row(request + 1000, j))
            store(compressed, request, rows[-1], j * RATIO, picks[t, k])
        q[t] = draw_queries(rng, rows, MIXED_HEADS)
    q[-1] = bf16_round(rng.standard_normal((MIXED_HEADS, D)).astype(np.float32))
    assert not windows.free and not compressed.free, (windows.free, compressed.free)

    # The table holds the rows in use: a position is a row of it, not a place in the text.
    used = sorted({context - 1 for _, context in MIXED_CONTEXTS})
    positions = [used.index(context - 1) for _, context in MIXED_CONTEXTS] + [0]
    sink = rng.standard_normal(MIXED_HEADS).astype(np.float32)
    sink[::16] += 4
    tensors = {
        "q": bf16(oracle.q_to_fused(q)),
        "window_cache": windows.cache.bytes,
        "compressed_cache": compressed.cache.bytes,
        "cos_sin": oracle.rope_table(used, RATIO),
        "window_list": lists,
        "compressed_list": picks,
        "positions": np.array(positions, np.int32),
        "window_lens": (lists >= 0).sum(axis=1).astype(np.int32),
        "compressed_lens": (picks >= 0).sum(axis=1).astype(np.int32),
        "sink": sink,
    }
    caches = windows.cache, compressed.cache
    data = capture("attend_paged", tensors, scale=repr(SCALE), q_layout="fused",
                   out_form="fp8_permuted", window_cache__format="v41_fp8",
                   window_cache__page_tokens=WINDOW_PAGE, compressed_cache__format="v41_fp4",
                   compressed_cache__page_tokens=COMPRESSED_PAGE)
    return data, golden("attend_paged", attend_results(q, tensors, caches))


def attend_results(q, tensors, caches):
    """out, out_scale and lse of a paged capture, token by token. q in the standard order."""
    outs, lses = [], []
    for t, position in enumerate(tensors["positions"]):
        rows = []
        for cache, name in zip(caches, ("window_list", "compressed_list")):
            rows += [cache.load(s) for s in tensors[name][t] if s >= 0]
        o, lse, _ = oracle.attend(q[t], np.array(rows).reshape(-1, D), tensors["cos_sin"][position],
                                  SCALE, tensors.get("sink"))
        outs.append(o)
        lses.append(lse)
    codes, scales = oracle.out_permuted(np.array(outs))
    return {"out": codes.view(E4m3), "out_scale": scales, "lse": np.array(lses, np.float32)}


# ---- small captures, one an operation ------------------------------------------------------------


def attend_paged_v4(rng):
    """584-byte records twice, q in the standard order, no lengths, holes in the lists."""
    latents, n_heads, page = Latents(rng), 8, 8
    caches = Cache("v4", page, 2), Cache("v4", page, 1)
    table = oracle.rope_table(range(40), 2)
    lists = np.full((3, 12), -1, np.int32)
    picks = np.full((3, 4), -1, np.int32)
    lists[0, 3], lists[1, :12] = 5, rng.permutation(12)
    picks[1, [0, 2]], picks[2, 1:3] = [7, 3], [7, 7]  # a slot named twice counts twice
    q = np.zeros((3, n_heads, D), np.float32)
    for cache, name in zip(caches, (lists, picks)):
        for s in np.unique(name[name >= 0]):
            cache.store(s, bf16_round(oracle.rotate(latents.row(len(name), s), table[s])))
    for t in range(3):
        q[t] = draw_queries(rng, [latents.row(1, t)], n_heads)
    tensors = {"q": bf16(q), "window_cache": caches[0].bytes, "compressed_cache": caches[1].bytes,
               "cos_sin": table, "window_list": lists, "compressed_list": picks,
               "positions": np.array([12, 39, 20], np.int32)}
    data = capture("attend_paged", tensors, scale=repr(SCALE), q_layout="standard",
                   window_cache__format="v4", window_cache__page_tokens=page,
                   compressed_cache__format="v4", compressed_cache__page_tokens=page)
    return data, golden("attend_paged", attend_results(q, tensors, caches))


def attend_rows(rng):
    """From bf16 rows, bf16 out, with max_logits."""
    latents, n_heads, n_rows = Latents(rng), 16, 24
    table = oracle.rope_table(range(n_rows), 0)
    kv = np.array([bf16_round(oracle.rotate(latents.row(0, p), table[p])) for p in range(n_rows)])
    lists = np.full((2, 16), -1, np.int32)
    lists[0, :9], lists[1, :16] = range(9), rng.permutation(n_rows)[:16]
    q = np.array([draw_queries(rng, kv[:9], n_heads), draw_queries(rng, kv, n_heads)])
    positions, lens = np.array([8, 23], np.int32), np.array([9, 16], np.int32)
    sink = np.array([0.5, -np.inf, np.inf, -3] * 4, np.float32)
    tensors = {"q": bf16(q), "kv": bf16(kv), "cos_sin": table, "list": lists, "lens": lens,
               "positions": positions, "sink": sink}
    parts = [oracle.attend(q[t], kv[lists[t, :lens[t]]].astype(np.float64), table[positions[t]],
                           SCALE, sink) for t in range(2)]
    results = {"out": bf16(np.array([p[0] for p in parts], np.float32)),
               "lse": np.array([p[1] for p in parts], np.float32),
               "max_logits": np.array([p[2] for p in parts], np.float32)}
    return (capture("attend_rows", tensors, scale=repr(SCALE), q_layout="standard",
                    out_form="bf16"), golden("attend_rows", results))


def kv_insert(rng, fmt, ratio=1, floor="amax", norm=False):
    """Six rows into two pages of four; one slot is negative, the last row is padding."""
    latents, page = Latents(rng), 4
    cache = Cache(fmt, page, 2, fill=0x5A)
    rows = np.array([latents.row(0, p) for p in range(6)])
    rows[1] *= 1e-4 / 64  # groups at the floor
    rows[2, 100:200] = 0
    rows = bf16_round(rows * np.float32(1 if norm else 3))
    positions = np.array([3, 7, 12, 13, 0, 5], np.int64)
    slots = np.array([6, 0, -1, 7, 3], np.int64)
    table = oracle.rope_table(range(16), ratio)
    weight = latents.weight.astype(np.float32)
    tensors = {"rows": bf16(rows), "cache": cache.bytes.copy(), "cos_sin": table,
               "positions": positions, "slots": slots}
    attrs = {"ratio": ratio, "scale_floor": floor, "cache__format": fmt,
             "cache__page_tokens": page}
    if norm:
        tensors["norm_weight"] = weight
        attrs["norm_eps"] = "1e-20"
    for t, slot in enumerate(slots):
        if slot >= 0:
            x = oracle.rms_norm(rows[t], weight, 1e-20) if norm else rows[t]
            turned = oracle.rotate(x, table[positions[t] // ratio * ratio])
            cache.store(slot, bf16_round(turned), floor)
    return (capture("kv_insert", tensors, **attrs), golden("kv_insert", {"cache": cache.bytes}))


def kv_gather(rng, fmt):
    """Three requests; one table leads out of the cache."""
    latents, page, rows, offset = Latents(rng), 3, 8, 1
    cache = Cache(fmt, page, 4)
    for slot in range(4 * page):
        cache.store(slot, bf16_round(latents.row(0, slot)))
    block_table = np.array([[2, 0, 3], [1, 99, 0], [-1, 2, 2]], np.int32)
    seq_lens, gather_lens = np.array([8, 5, 9], np.int32), np.array([7, 5, 4], np.int32)
    out = np.zeros((3, rows, D), np.float32)
    for r in range(3):
        for i in range(gather_lens[r]):
            place, record = divmod(int(seq_lens[r] - gather_lens[r] + i), page)
            if 0 <= block_table[r, place] < 4:
                out[r, offset + i] = cache.load(block_table[r, place] * page + record)
    tensors = {"cache": cache.bytes, "block_table": block_table, "seq_lens": seq_lens,
               "gather_lens": gather_lens}
    return (capture("kv_gather", tensors, rows=rows, offset=offset, cache__format=fmt,
                    cache__page_tokens=page), golden("kv_gather", {"rows": bf16(out)}))


def pack_rows(rows):
    """[(row, length)] -> list and lens."""
    return {"list": np.array([r for r, _ in rows], np.int32),
            "lens": np.array([n for _, n in rows], np.int32)}


def window_list(rng):
    """A decode request, a short one with two tokens, one row of padding."""
    seq_lens, query_start = np.array([41, 3, 300], np.int32), np.array([0, 1, 3, 5], np.int32)
    valid = np.array([1, 1, 1, 1, 0, 1], np.uint8)
    tables = rng.permutation(30).reshape(3, 10).astype(np.int32)
    rows = []
    for t in range(6):
        r = int(np.searchsorted(query_start[1:], t, side="right"))
        if r == 3 or not valid[t]:
            rows.append(([-1] * 160, 0))
            continue
        position = int(seq_lens[r] - (query_start[r + 1] - query_start[r]) + t - query_start[r])
        rows.append(oracle.window_row(tables[r], position, 128, 32, 160))
    tensors = {"query_start": query_start, "seq_lens": seq_lens, "block_table": tables,
               "valid": valid}
    return (capture("window_list", tensors, page_tokens=32, width=160),
            golden("window_list", pack_rows(rows)))


def compressed_list(rng):
    """Holes, an empty row, an invalid token, a request that is not there."""
    tables = rng.permutation(12).reshape(2, 6).astype(np.int32)
    topk = np.full((5, 512), -1, np.int32)
    topk[0, :20] = range(20)
    topk[1, 5:300:2] = np.arange(148)
    topk[3] = rng.randint(-1, 384, 512)
    topk[4, :4] = 1
    request, valid = np.array([1, 0, 0, 1, 7], np.int32), np.array([1, 1, 1, 0, 1], np.uint8)
    rows = [oracle.compressed_row(tables[r], topk[t], 64) if r < 2 and valid[t]
            else ([-1] * 512, 0) for t, r in enumerate(request)]
    tensors = {"topk": topk, "request": request, "block_table": tables, "valid": valid}
    return (capture("compressed_list", tensors, page_tokens=64),
            golden("compressed_list", pack_rows(rows)))


def combined_list(rng):
    """Two prefill requests in one workspace, an image inside the second."""
    seq_lens, query_start = np.array([9, 20], np.int32), np.array([0, 4, 10], np.int32)
    gather_lens = np.minimum(np.diff(query_start) + 7, seq_lens).astype(np.int32)
    n, m, window, ratio, most, images = 10, 24, 8, 2, 6, 3
    topk = np.full((10, 6), -1, np.int32)
    left, right = np.zeros(10, np.int32), np.zeros(10, np.int32)
    left[6:9], right[6:9] = [0, 1, 2], [2, 1, 0]
    rows = []
    for t in range(10):
        r = int(np.searchsorted(query_start[1:], t, side="right"))
        position = int(seq_lens[r] - (query_start[r + 1] - query_start[r]) + t - query_start[r])
        visible = min((position + 1) // ratio, most)
        topk[t, :visible] = np.sort(rng.permutation((position + 1) // ratio)[:visible])
        rows.append(oracle.combined_row(topk[t], position, int(seq_lens[r]), int(gather_lens[r]),
                                        m * r, n, window, ratio, most, 128, int(left[t]),
                                        int(right[t])))
    tensors = {"topk": topk, "query_start": query_start, "seq_lens": seq_lens,
               "gather_lens": gather_lens, "left": left, "right": right}
    return (capture("combined_list", tensors, window=window, ratio=ratio, topk=most, M=m, N=n,
                    image_tokens=images), golden("combined_list", pack_rows(rows)))


def compressed_slots(rng):
    tables = rng.permutation(8).reshape(2, 4).astype(np.int32)
    positions = np.array([0, 1, 40, 41, 7, 513, 9], np.int64)
    slots = np.array([5, 6, 2, 3, -1, 8, 9], np.int64)
    request = np.array([0, 0, 1, 1, 1, 0, 5], np.int32)
    out = [oracle.compressed_slot(tables[r], int(p), s, 2, 64) if r < 2 else -1
           for p, s, r in zip(positions, slots, request)]
    tensors = {"positions": positions, "slots": slots, "request": request, "block_table": tables}
    return (capture("compressed_slots", tensors, ratio=2, page_tokens=64),
            golden("compressed_slots", {"slots": np.array(out, np.int64)}))


def permute_wq_b(rng):
    heads, k, s = 8, 3, 1
    weight = rng.randint(256, size=(heads * D, k)).astype(np.uint8)
    scale = rng.randint(256, size=(heads * D, s)).astype(np.uint8)
    rows = np.arange(heads * D)
    h, x = rows // D, rows % D
    to = x // 16 * heads * 16 + h * 16 + x % 16
    out, out_scale = np.empty_like(weight), np.empty_like(scale)
    out[to], out_scale[to] = weight, scale
    return (capture("permute_wq_b", {"weight": weight, "scale": scale}, heads=heads),
            golden("permute_wq_b", {"weight": out, "scale": out_scale}))


def permute_wo_a(rng):
    weight = rng.randint(256, size=(2, 4096)).astype(np.uint8)
    scale = rng.randint(256, size=(2, 128)).astype(np.uint8)
    out = weight.reshape(2, 8, 16, 32).transpose(0, 2, 1, 3).reshape(2, 4096)
    out_scale = scale.reshape(2, 8, 16).transpose(0, 2, 1).reshape(2, 128)
    return (capture("permute_wo_a", {"weight": weight, "scale": scale}),
            golden("permute_wo_a", {"weight": out, "scale": out_scale}))


SMALL = {
    "attend_paged_v4": attend_paged_v4,
    "attend_rows": attend_rows,
    "kv_insert_v4": lambda rng: kv_insert(rng, "v4"),
    "kv_insert_v41_fp8_norm": lambda rng: kv_insert(rng, "v41_fp8", norm=True),
    "kv_insert_v41_fp8_floor": lambda rng: kv_insert(rng, "v41_fp8", floor="scale"),
    "kv_insert_v41_fp4": lambda rng: kv_insert(rng, "v41_fp4", ratio=2),
    "kv_gather_v4": lambda rng: kv_gather(rng, "v4"),
    "kv_gather_v41_fp8": lambda rng: kv_gather(rng, "v41_fp8"),
    "kv_gather_v41_fp4": lambda rng: kv_gather(rng, "v41_fp4"),
    "window_list": window_list,
    "compressed_list": compressed_list,
    "combined_list": combined_list,
    "compressed_slots": compressed_slots,
    "permute_wq_b": permute_wq_b,
    "permute_wo_a": permute_wo_a,
}


def all_files(seed):
    """Path below the root -> bytes."""
    files = {}
    data, result = mixed_batch(seed)
    files["examples/mixed_batch.safetensors"] = data
    files["tests/golden/captures/mixed_batch.expected.safetensors"] = result
    for i, (name, make) in enumerate(SMALL.items()):
        data, result = make(np.random.RandomState(seed + 1 + i))
        files[f"examples/captures/{name}.safetensors"] = data
        files[f"tests/golden/captures/{name}.expected.safetensors"] = result
    return files


def main():
    parser = argparse.ArgumentParser(description="Makes the sample captures and their results.")
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the source tree")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()
    differing = 0
    for path, data in all_files(options.seed).items():
        target = options.root / path
        if options.check:
            same = target.exists() and target.read_bytes() == data
            differing += not same
            print("same   " if same else "DIFFERS", path)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        print(f"{len(data):8d}  {path}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
