#!/usr/bin/env python3
"""check_hostile.py MEGAMLA SOURCE_DIR [--sanitized] - files that lie, and what the command says.

Every file is damaged in one way. The command must end with status 1 or 2, name the file and say
something about the damage, print nothing on standard output, leave no file behind and take neither
much time nor much memory. --sanitized leaves out the limits on memory.
"""

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
SANITIZED = "--sanitized" in sys.argv
MEMORY_LIMIT = 1 << 30       # of addresses
RESIDENT_LIMIT = 96 << 20    # beyond the largest file by far
SECONDS = 20

CASES = []  # (name, words of the message, make(path))


def case(name, words, make):
    assert words, f"{name}: any message would pass"
    CASES.append((name, words, make))


def raw(data):
    return lambda path: path.write_bytes(data)


def sample(name):
    return read(SOURCE / "examples" / "captures" / f"{name}.safetensors")


def changed(name, change):
    """A sample whose metadata and tensors `change` edits in place."""
    def make(path):
        meta, parts = sample(name)
        change(meta, parts)
        write(path, *tensors([(n, *p) for n, p in parts.items()], meta))
    return make


def set_attr(key, value):
    return lambda meta, parts: meta.__setitem__(key, value)


def drop_attr(key):
    return lambda meta, parts: meta.pop(key)


def set_tensor(name, dtype, shape, data):
    return lambda meta, parts: parts.__setitem__(name, (dtype, shape, data))


def drop_tensor(name):
    return lambda meta, parts: parts.pop(name)


def i32(*values):
    return struct.pack(f"<{len(values)}i", *values)


def header_of(**meta):
    return {"__metadata__": {"megamla": "1", "op": "permute_wo_a", **meta}}


U8 = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


def with_x(data=b"1234", **fields):
    """A header with one tensor x, some of whose fields are other than they should be."""
    return lambda path: write(path, {**header_of(), "x": {**U8, **fields}}, data)


# The file itself.
whole = (SOURCE / "examples" / "captures" / "kv_gather_v4.safetensors").read_bytes()
case("zero_length", "0 bytes", raw(b""))
for n in (1, 7):
    case(f"truncated_at_{n}", f"header: the file has {n} bytes", raw(whole[:n]))
for n in (8, 9, 100):
    case(f"truncated_at_{n}", f"but only {n - 8} follow; is the file truncated?", raw(whole[:n]))
for n, tensor in ((1000, "cache"), (len(whole) // 2, "cache"), (len(whole) - 1, "gather_lens")):
    case(f"truncated_at_{n}", f"{tensor}: ends at data byte", raw(whole[:n]))
case("byte_more", "joined", raw(whole + b"x"))
case("header_longer_than_file", "truncated", raw(struct.pack("<Q", 1000) + b"{}"))
case("header_over_the_cap", "at most 1048576", raw(struct.pack("<Q", (1 << 20) + 1) + b" " * (1 << 21)))
case("header_of_2_to_63", "9223372036854775808", raw(struct.pack("<Q", 1 << 63) + b"{}"))
case("header_of_2_to_64", "18446744073709551615", raw(b"\xff" * 8 + b"{}"))
case("text_file", "this is no safetensors file", raw(b"This is a text file, with more than eight bytes in it.\n"))
case("zeros", "'[' or '{' expected", raw(bytes(4096)))

# JSON.
case("deep_json", "maximum parsing depth", lambda path: write(path, b"[" * 1000000))
case("deep_objects", "maximum parsing depth", lambda path: write(path, b'{"a":' * 200000))
case("many_small_values", "must be a JSON object", lambda path: write(path, b"[" + b"0," * 500000 + b"0]"))
case("invalid_utf8", "not UTF-8", lambda path: write(path, b'{"\xff\xfe":1}'))
case("overlong_utf8", "not UTF-8", lambda path: write(path, b'{"\xc0\xaf":1}'))
case("nul_in_a_name", "NUL byte in object key", lambda path: write(path, b'{"a\\u0000":1}'))
case("duplicate_names", "duplicate", lambda path: write(path, b'{"x":1,"x":2}'))
case("no_object", "'[' or '{' expected", lambda path: write(path, b"7"))
case("garbage_after_json", "end of file expected", lambda path: write(path, b"{}}"))
case("huge_number", "big integer", lambda path: write(path, b'{"x":{"dtype":"U8","shape":[%d],'
                                                     b'"data_offsets":[0,4]}}' % (1 << 63), b"1234"))

# Tensors.
case("dtype_unknown", 'dtype "F4"', with_x(dtype="F4"))
case("dtype_no_string", "no dtype", with_x(dtype=3))
case("dtype_with_escape", "?[31m", with_x(dtype="\x1b[31m"))
case("shape_no_array", "no shape", with_x(shape="4"))
case("shape_negative", "no whole number", with_x(shape=[-4]))
case("shape_of_reals", "no whole number", with_x(shape=[4.0]))
case("shape_overflows", "64 bits", with_x(shape=[1 << 32, 1 << 32]))
case("shape_overflows_to_zero", "64 bits", with_x(shape=[1 << 62, 4]))
case("shape_of_many", "at most 8", with_x(shape=[1] * 100000))
case("shape_disagrees", "take 5", with_x(shape=[5]))
case("offsets_missing", "no data_offsets", with_x(data_offsets=None))
case("offsets_of_three", "no data_offsets", with_x(data_offsets=[0, 4, 4]))
case("offsets_past_the_file", "truncated", with_x(data_offsets=[0, 1 << 40], shape=[1 << 40]))
case("offsets_at_2_to_63", "must end within 0 .. 4", with_x(data_offsets=[0, (1 << 63) - 1], shape=[(1 << 63) - 1]))
case("offsets_turned_round", "begins at data byte 4", with_x(data_offsets=[4, 0]))
case("offsets_negative", "begins at data byte -4", with_x(data_offsets=[-4, 0]))
case("offsets_leave_a_gap", "no gap", with_x(b"12345678", data_offsets=[4, 8]))
case("offsets_overlap", "overlap", lambda path: write(
    path, {**header_of(), "x": U8, "y": {**U8, "data_offsets": [2, 6]}}, b"123456"))
case("offsets_unsorted", "in order", lambda path: write(
    path, {**header_of(), "x": {**U8, "data_offsets": [4, 8]}, "y": U8}, b"12345678"))

# Metadata.
case("metadata_missing", "megamla: attribute is missing", lambda path: write(path, {"x": U8}, b"1234"))
case("metadata_no_object", "object of strings", lambda path: write(path, {"__metadata__": []}))
case("metadata_no_string", '"heads" must be a string', lambda path: write(path, header_of(heads=8)))
case("version_unknown", '"2"', changed("window_list", set_attr("megamla", "2")))
case("op_missing", "op: attribute is missing", changed("window_list", drop_attr("op")))
case("op_unknown", "must be one of kv_insert kv_gather", changed("window_list", set_attr("op", "x")))
case("op_of_the_chain", "must be one of", changed("window_list", set_attr("op", "chain")))

# Attributes.
case("attribute_unknown", "colour: unknown attribute", changed("window_list", set_attr("colour", "blue")))
case("attribute_missing", "width: attribute is missing", changed("window_list", drop_attr("width")))
case("attribute_scale_missing", "scale: attribute is missing", changed("attend_rows", drop_attr("scale")))
for text in ("", " 8", "8 ", "+8", "0x8", "8.0", "1e1", "8\n", "-1", "0", "99999999999999999999", "٨"):
    case(f"attribute_integer_{text!r}", "width: is ", changed("window_list", set_attr("width", text)))
for text in ("", "nan", "inf", "1e999", "0x1p-3", " 0.5", "0.5x", "1,5", "0.5f"):
    case(f"attribute_real_{text!r}", "scale: is ", changed("attend_rows", set_attr("scale", text)))
for text in ("0", "-1", "1e-60"):
    case(f"scale_{text}", "scale: is ", changed("attend_rows", set_attr("scale", text)))
case("choice_unknown", "must be standard or fused", changed("attend_rows", set_attr("q_layout", "Fused")))
case("format_unknown", "v4, v41_fp8 or v41_fp4", changed("kv_gather_v4", set_attr("cache.format", "v5")))
case("format_of_an_absent_cache", "compressed_cache", changed(
    "attend_paged_v4", lambda m, p: (p.pop("compressed_cache"), p.pop("compressed_list"))))
case("page_tokens_too_many", "page_tokens: ", changed("window_list", set_attr("page_tokens", "65537")))
case("implementation_unknown", '"quantum"', changed("attend_rows", set_attr("impl", "quantum")))

# Inputs.
case("tensor_missing", "seq_lens: tensor is missing", changed("window_list", drop_tensor("seq_lens")))
case("tensor_unknown", "lenz: unknown tensor", changed("window_list", set_tensor("lenz", "I32", [1], i32(0))))
case("tensor_of_other_dtype", "must be I32", changed("window_list", set_tensor("seq_lens", "F32", [3], bytes(12))))
case("tensor_of_other_rank", "must be [3]", changed("kv_gather_v4", set_tensor("seq_lens", "I32", [3, 1], bytes(12))))
case("tensor_of_other_size", "must be [3]", changed("kv_gather_v4", set_tensor("seq_lens", "I32", [4], bytes(16))))
case("heads_not_of_eight", "q: number of heads (its second dimension) is 4, must be a multiple of 8", changed("attend_rows", lambda m, p: (
    p.__setitem__("q", ("BF16", [2, 4, 512], bytes(8192))), p.pop("sink"))))
case("list_without_cache", "compressed_cache: tensor is missing", changed(
    "attend_paged_v4", lambda m, p: (p.pop("compressed_cache"), m.pop("compressed_cache.format"),
                                     m.pop("compressed_cache.page_tokens"))))
case("cache_without_list", "compressed_list: tensor is missing", changed("attend_paged_v4", drop_tensor("compressed_list")))
case("norm_without_eps", "norm_eps: attribute is missing", changed("kv_insert_v41_fp8_norm", drop_attr("norm_eps")))
case("eps_without_norm", "norm_eps: is given", changed("kv_insert_v41_fp8_norm", drop_tensor("norm_weight")))
case("left_without_image_tokens", "left: is given", changed("combined_list", drop_attr("image_tokens")))
case("image_tokens_without_left", "left: tensor is missing", changed("combined_list", drop_tensor("left")))
case("heads_disagree", "weight: has 4096 rows", changed("permute_wq_b", set_attr("heads", "16")))

# Pages without bytes: no stride, which is not the default stride.
case("gather_from_no_bytes", "cache: has shape [1000, 0]", changed("kv_gather_v4", set_tensor("cache", "U8", [1000, 0], b"")))
case("insert_into_no_bytes", "cache: has shape [1000, 0]", changed("kv_insert_v4", set_tensor("cache", "U8", [1000, 0], b"")))
for name in ("window_cache", "compressed_cache"):
    case(f"attend_to_no_bytes_{name}", f"{name}: has shape [1000, 0]", changed(
        "attend_paged_v4", set_tensor(name, "U8", [1000, 0], b"")))

# Values the operation refuses.
case("query_start_falls", "query_start: ", changed("window_list", set_tensor("query_start", "I32", [4], i32(0, 3, 1, 5))))
case("query_start_huge", "an output of [2147483647, 160]", changed("window_list", lambda m, p: (
    p.pop("valid"), p.__setitem__("query_start", ("I32", [4], i32(0, 1, 3, 2**31 - 1))))))
case("slot_past_the_cache", "slots: of row 3 is 4611686018427387904", changed("kv_insert_v4", set_tensor(
    "slots", "I64", [5], struct.pack("<5q", 6, 0, -1, 2**62, 3))))
case("position_past_the_table", "positions: ", changed("attend_rows", set_tensor("positions", "I32", [2], i32(8, 24))))
case("rows_ask_for_terabytes", "more than 64 MiB", changed("kv_gather_v4", set_attr("rows", str(2**31 - 1))))
case("width_asks_for_gigabytes", "more than 64 MiB", changed("window_list", set_attr("width", str(2**31 - 1))))
case("page_stride_too_small", "cache: page stride (its second dimension, bytes) is 16", changed("kv_gather_v4", set_tensor("cache", "U8", [4, 16], bytes(64))))
case("window_stride_too_small", ": window_cache: page stride (its second dimension, bytes) is 16", changed(
    "attend_paged_v4", set_tensor("window_cache", "U8", [1, 16], bytes(16))))
case("window_page_too_large", ": window_cache.page_tokens: is 65537", changed(
    "attend_paged_v4", set_attr("window_cache.page_tokens", "65537")))
case("window_rows_past_a_request", ": N: is 2147483647, must be 0 .. ", changed(
    "combined_list", set_attr("N", str(2**31 - 1))))


def limits():
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))


def problem_of(name, words, path, folder):
    """What is wrong with the command's answer, None when it is right."""
    before = set(os.listdir(folder))
    run = subprocess.run([MEGAMLA, "run", path, "-o", "out.safetensors"], cwd=folder, timeout=SECONDS,
                         stdin=subprocess.DEVNULL, capture_output=True, preexec_fn=limits)
    message = run.stderr.decode(errors="replace")
    if run.returncode not in (1, 2):
        return f"exit status {run.returncode}: {message}"
    if not message.startswith(f"megamla run: {path}: ") or message.count("\n") != 1:
        return f"the message does not name the file, or is not one line: {message!r}"
    if words not in message:
        return f"the message does not say {words!r}: {message!r}"
    if any(ord(c) < 32 for c in message[:-1]):
        return f"the message has control characters: {message!r}"
    if run.stdout:
        return "standard output is not empty"
    if set(os.listdir(folder)) != before:
        return f"files were left behind: {set(os.listdir(folder)) - before}"
    return None


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, words, make) in enumerate(CASES):
            path = pathlib.Path(folder) / f"{i}.safetensors"
            make(path)
            problem = problem_of(name, words, str(path), folder)
            path.unlink()
            if problem:
                failed += 1
                print(f"FAIL {name}: {problem}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"{len(CASES)} files, {failed} failed, at most {peak >> 20} MiB resident")
    if not SANITIZED and peak > RESIDENT_LIMIT:
        print(f"FAIL more than {RESIDENT_LIMIT >> 20} MiB resident")
        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
