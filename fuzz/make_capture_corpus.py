#!/usr/bin/env python3
"""make_capture_corpus.py - writes the hand-made seeds of fuzz_capture: one small capture of every
operation, so that the fuzzer starts behind the header, and headers with one thing wrong. Needs only
the standard library. Run it from fuzz/ after the format of captures changed."""
import json
import pathlib
import struct


def file_of(op, tensors, **attrs):
    header = {"__metadata__": {"megamla": "1", "op": op,
                               **{k.replace("__", "."): str(v) for k, v in attrs.items()}}}
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def i32(*shape, values=()):
    n = 1
    for size in shape:
        n *= size
    values = list(values) + [0] * (n - len(values))
    return ("I32", list(shape), struct.pack(f"<{n}i", *values))


def i64(*values):
    return ("I64", [len(values)], struct.pack(f"<{len(values)}q", *values))


def of(dtype, size, *shape):
    n = size
    for s in shape:
        n *= s
    return (dtype, list(shape), bytes(n))


FP8_1 = {"cache__format": "v41_fp8", "cache__page_tokens": 1}
COS_SIN = of("F32", 4, 1, 64)
SEEDS = {
    "kv_insert": file_of("kv_insert", {
        "rows": of("BF16", 2, 1, 512), "positions": i64(0), "slots": i64(0), "cos_sin": COS_SIN,
        "cache": of("U8", 1, 1, 1024)}, **FP8_1),
    "kv_gather": file_of("kv_gather", {
        "cache": of("U8", 1, 1, 1024), "block_table": i32(1, 2), "seq_lens": i32(1, values=[2])},
        rows=2, offset=0, **FP8_1),
    "attend_paged": file_of("attend_paged", {
        "q": of("BF16", 2, 1, 8, 512), "positions": i32(1), "cos_sin": COS_SIN,
        "window_cache": of("U8", 1, 1, 1024), "window_list": i32(1, 2),
        "compressed_cache": of("U8", 1, 1, 512), "compressed_list": i32(1, 1),
        "compressed_lens": i32(1, values=[1]), "sink": of("F32", 4, 8)},
        scale=0.044, q_layout="fused", window_cache__format="v41_fp8", window_cache__page_tokens=1,
        compressed_cache__format="v41_fp4", compressed_cache__page_tokens=1),
    "attend_rows": file_of("attend_rows", {
        "q": of("BF16", 2, 1, 8, 512), "positions": i32(1), "cos_sin": COS_SIN,
        "kv": of("BF16", 2, 2, 512), "list": i32(1, 3, values=[1, -1, 0]), "lens": i32(1, values=[3])},
        scale=0.044, q_layout="standard", out_form="fp8_128", q_norm_eps="1e-6", impl="portable"),
    "window_list": file_of("window_list", {
        "query_start": i32(3, values=[0, 1, 3]), "seq_lens": i32(2, values=[5, 2]),
        "block_table": i32(2, 2, values=[0, 1, 2, 3]), "valid": of("U8", 1, 3)},
        window=4, page_tokens=4, width=4),
    "compressed_list": file_of("compressed_list", {
        "topk": i32(1, 512, values=[0, 5, -1, 3]), "request": i32(1), "block_table": i32(1, 2)},
        page_tokens=4),
    "combined_list": file_of("combined_list", {
        "topk": i32(2, 2, values=[0, 1]), "query_start": i32(2, values=[0, 2]),
        "seq_lens": i32(1, values=[4]), "gather_lens": i32(1, values=[4]), "left": i32(2),
        "right": i32(2)}, window=3, ratio=1, topk=2, M=9, N=4, image_tokens=2),
    "compressed_slots": file_of("compressed_slots", {
        "positions": i64(1, 2), "slots": i64(3, -1), "request": i32(2), "block_table": i32(1, 1)},
        ratio=2, page_tokens=64),
    "permute_wq_b": file_of("permute_wq_b", {
        "weight": of("U8", 1, 4096, 1), "scale": of("U8", 1, 4096, 0)}, heads=8),
    "permute_wo_a": file_of("permute_wo_a", {
        "weight": of("U8", 1, 1, 4096), "scale": of("U8", 1, 1, 128)}),
    "project_no_tokens": file_of("project", {
        "x": of("F8_E4M3", 1, 0, 0, 4096), "x_scale": of("U8", 1, 0, 0, 128),
        "weight": of("F8_E4M3", 1, 0, 1024, 4096), "weight_scale": of("U8", 1, 0, 1024, 128)}),
    "no_tokens": file_of("kv_insert", {
        "rows": of("BF16", 2, 0, 512), "positions": i64(), "slots": i64(), "cos_sin": COS_SIN,
        "cache": of("U8", 1, 0, 0)}, **FP8_1),
    "gather_no_bytes": file_of("kv_gather", {
        "cache": of("U8", 1, 1000, 0), "block_table": i32(1, 2, values=[0, 900]),
        "seq_lens": i32(1, values=[2])}, rows=2, offset=0, **FP8_1),
    "insert_no_bytes": file_of("kv_insert", {
        "rows": of("BF16", 2, 1, 512), "positions": i64(0), "slots": i64(900), "cos_sin": COS_SIN,
        "cache": of("U8", 1, 1000, 0)}, **FP8_1),
    "attend_no_bytes": file_of("attend_paged", {
        "q": of("BF16", 2, 1, 8, 512), "positions": i32(1), "cos_sin": COS_SIN,
        "window_cache": of("U8", 1, 1000, 0), "window_list": i32(1, 2, values=[0, 900])},
        scale=0.044, q_layout="fused", window_cache__format="v41_fp8", window_cache__page_tokens=1),
    "attend_no_tokens_wide": file_of("attend_rows", {
        "q": of("BF16", 2, 0, 8, 512), "positions": i32(0), "cos_sin": COS_SIN,
        "kv": of("BF16", 2, 2, 512), "list": i32(0, 300000)}, scale=0.044, q_layout="standard"),
    "empty": b"",
    "length_2_to_63": struct.pack("<Q", 1 << 63) + b"{}",
    "deep": struct.pack("<Q", 4096) + b"[" * 4096,
    "huge_shape": file_of("permute_wo_a", {"weight": ("U8", [1 << 62, 4096], b"")}),
    "overlap": struct.pack("<Q", 117) + b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
               b'"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}'.ljust(117) + bytes(6),
}

folder = pathlib.Path("corpus/fuzz_capture")
folder.mkdir(parents=True, exist_ok=True)
for name, seed in SEEDS.items():
    (folder / ("seed_" + name)).write_bytes(seed)
