"""save_capture and run_capture: the repository's samples, round trips, hostile files."""

import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

import megamla
import oracle
from attend_case import AttendCase
from conftest import make_framework

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "captures"
SAMPLES = sorted((ROOT / "examples").glob("**/*.safetensors"))


def read(path):
    raw = Path(path).read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    metadata = header.pop("__metadata__")
    dtypes = {"U8": "u1", "F8_E4M3": "u1", "BF16": "u2", "F32": "f4", "I32": "i4", "I64": "i8"}
    return metadata, {name: np.frombuffer(raw, dtypes[e["dtype"]], offset=8 + n + e["data_offsets"][0],
                                          count=int(np.prod(e["shape"]))).reshape(e["shape"])
                      for name, e in header.items()}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_samples_give_what_is_expected_of_them(sample):
    metadata, want = read(GOLDEN / (sample.stem + ".expected.safetensors"))
    got = megamla.run_capture(str(sample))
    attends = metadata["op"].startswith("attend")
    assert attends or set(got) == set(want)
    for name in set(got) & set(want):
        if not attends:
            assert np.array_equal(got[name], want[name]), name
        elif name in ("lse", "max_logits"):
            oracle.assert_lse(got[name], want[name].astype(np.float64), name)
    if attends:
        form = {"uint16": "bf16"}.get(str(got["out"].dtype), "fp8_permuted")
        value = oracle.value_of_output(form, want["out"], want.get("out_scale"))
        oracle.assert_output(form, got["out"], got.get("out_scale"), value)


def test_samples_were_found():
    assert len(SAMPLES) > 10


CASES = {"paged": dict(t=5, page_tokens=16), "rows": dict(t=4, rows=30, q_layout="fused"),
         "v4": dict(formats=("v4", None), page_tokens=5, q_norm=True, sink=False, lens=False),
         "bf16": dict(out_form="bf16"), "fp8_128": dict(out_form="fp8_128")}


@pytest.mark.parametrize("options", CASES.values(), ids=list(CASES))
def test_saved_call_replays_to_the_same_bits(fw, options, tmp_path):
    case = AttendCase(1, **options)
    path = str(tmp_path / "call.safetensors")
    megamla.save_capture(path, case.function.__name__, **case.arguments(fw), **case.keywords)
    got = megamla.run_capture(path)
    result = case.run(make_framework("numpy"))
    assert np.array_equal(got["out"], result.out) and np.array_equal(got["lse"], result.lse)
    assert os.listdir(tmp_path) == ["call.safetensors"]


@pytest.mark.parametrize("options", CASES.values(), ids=list(CASES))
def test_the_command_replays_what_was_saved(options, tmp_path):
    command = os.environ.get("MEGAMLA_COMMAND") or shutil.which("megamla")
    if command is None:
        pytest.skip("the megamla command is not installed")
    case = AttendCase(2, **options)
    path = str(tmp_path / "call.safetensors")
    megamla.save_capture(path, case.function.__name__, **case.arguments(make_framework("numpy")),
                         **case.keywords)
    done = subprocess.run([command, "run", path, "--compare", "reference", "-o",
                           str(tmp_path / "out.safetensors")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    _, out = read(tmp_path / "out.safetensors")
    got = megamla.run_capture(path)
    assert np.array_equal(out["out"], got["out"]) and np.array_equal(out["lse"], got["lse"])


def test_other_operations_round_trip(tmp_path):
    rng = np.random.default_rng(3)
    path = str(tmp_path / "call.safetensors")
    cache = np.zeros((2, 16, 528), np.uint8)
    rows, at = rng.integers(0, 0x4000, (3, 512)).astype(np.uint16), np.arange(3, dtype=np.int64)
    table = megamla.rope_table(8, ratio=1)
    megamla.save_capture(path, "kv_insert", rows, at, at, table, cache, ratio=2)
    megamla.kv_insert(rows, at, at, table, cache, ratio=2)
    assert np.array_equal(megamla.run_capture(path)["cache"], cache.reshape(2, -1))

    gather = dict(block_table=np.array([[1, 0]], np.int32), seq_lens=np.array([9], np.int32), rows=12,
                  offset=1)
    megamla.save_capture(path, "kv_gather", cache, **gather)
    assert np.array_equal(megamla.run_capture(path)["rows"][:, 1:10],
                          megamla.kv_gather(cache, **gather)[:, 1:10])

    query = dict(query_start=np.array([0, 2], np.int32), seq_lens=np.array([9], np.int32))
    cache[:] = rng.integers(0, 0x78, cache.shape)
    for more, written in ((dict(ratio=2), slice(1, 5)),
                          (dict(window=4, query_start=query["query_start"]), slice(1, 6))):
        megamla.save_capture(path, "kv_gather", cache, **gather, **more)
        got = megamla.run_capture(path)["rows"][0]  # 0 where nothing is written
        assert np.array_equal(got[written], megamla.kv_gather(cache, **gather, **more)[0, written])
        assert np.any(got[written]) and np.all(got[written.stop:] == 0)
    with pytest.raises(ValueError, match="^window: must be 0 for records of ratio 2"):
        megamla.save_capture(path, "kv_gather", cache, **gather, ratio=2, window=4,
                             query_start=query["query_start"])

    rows = dict(query, topk=np.array([[0, -1], [2, 1]], np.int32), ratio=2, topk_limit=2, request_rows=9,
                window_offset=4, window=4)
    megamla.save_capture(path, "combined_list", **rows)
    assert list(read(path)[1]["gather_lens"]) == [5]  # what the command reads has it always
    assert np.array_equal(megamla.run_capture(path)["list"], megamla.combined_list(**rows).list)

    window = dict(query_start=np.array([0, 2], np.int32), seq_lens=np.array([9], np.int32),
                  block_table=np.array([[1, 0]], np.int32), page_tokens=16)
    megamla.save_capture(path, "window_list", **window, n_pages=2)
    want = megamla.window_list(**window, n_pages=2, n_tokens=2)
    assert np.array_equal(megamla.run_capture(path)["list"], want.list)

    result = AttendCase(4).run(make_framework("numpy"))
    w, s = np.ones((2, 1024, 4096), np.uint8), np.full((2, 1024, 128), 120, np.uint8)
    megamla.save_capture(path, "project", result.out, result.out_scale, w, s)
    assert np.array_equal(megamla.run_capture(path)["z"],
                          megamla.project(result.out, result.out_scale, w, s))


def damaged(header=None, n=None, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if n is None else n) + text + data


GOOD = {"megamla": "1", "op": "attend_rows", "scale": "1"}
HOSTILE = {
    "empty": b"", "short": b"1234", "long header": damaged(b"{}", 1 << 60),
    "not json": damaged(b"{]"), "not utf8": damaged(b'{"\xff": 1}'), "deep": damaged(b"[" * 50000),
    "list": damaged([]), "no metadata": damaged({}), "other version": damaged({"__metadata__": {
        "megamla": "9", "op": "project"}}),
    "unknown op": damaged({"__metadata__": dict(GOOD, op="fly")}),
    "missing tensors": damaged({"__metadata__": GOOD}),
    "unknown tensor": damaged({"__metadata__": GOOD, "w": {
        "dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, data=b"1"),
    "past the end": damaged({"__metadata__": GOOD, "q": {
        "dtype": "BF16", "shape": [1, 8, 512], "data_offsets": [0, 8192]}}),
    "wrong length": damaged({"__metadata__": GOOD, "q": {
        "dtype": "BF16", "shape": [1 << 62, 8, 512], "data_offsets": [0, 4]}}, data=b"1234"),
    "negative": damaged({"__metadata__": GOOD, "q": {
        "dtype": "BF16", "shape": [-1, -2], "data_offsets": [0, 4]}}, data=b"1234"),
    "dtype": damaged({"__metadata__": GOOD, "q": {
        "dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}, data=b"12345678"),
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_files_are_refused(raw, tmp_path):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="^path: "):
        megamla.run_capture(str(path))


def test_what_cannot_be_saved_is_named(tmp_path):
    path = str(tmp_path / "x.safetensors")
    case, fw = AttendCase(5), make_framework("numpy")
    with pytest.raises(ValueError, match="^op: is 'fly'"):
        megamla.save_capture(path, "fly")
    with pytest.raises(ValueError, match="^sink: has no dtype"):
        megamla.save_capture(path, "attend_paged", **dict(case.arguments(fw), sink=np.zeros(16)))
    with pytest.raises(TypeError):
        megamla.save_capture(path, "attend_paged", wrong=1)
    assert os.listdir(tmp_path) == []
