"""kv_insert, kv_gather, rope_table against the oracle: bytes are equal."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import megamla
import oracle
from attend_case import angles, bf16_noise, cache_arguments
from conftest import make_framework
from test_attend import HERE

FORMATS = ["v4", "v41_fp8", "v41_fp4"]


def expected_insert(pages, rows, positions, slots, cos_sin, ratio):
    for row, position, slot in zip(rows, positions, slots):
        if 0 <= slot < pages.capacity:
            value = oracle.bf16_value(row)
            if position // ratio * ratio < len(cos_sin):
                turned = oracle.rotate(value, cos_sin[position // ratio * ratio])
                pages.store(slot, oracle.bf16_value(oracle.bf16_bits(turned)))


def insert(fw, pages, rows, positions, slots, cos_sin, **more):
    arguments = cache_arguments(fw, pages, "")
    cache = arguments.pop("cache")
    megamla.kv_insert(fw.put(rows, "bf16"), fw.put(positions), fw.put(slots), fw.put(cos_sin), cache,
                      **arguments, **more)
    n, tokens, record = pages.bytes.shape
    return fw.get(cache).reshape(n, -1)[:, :tokens * record].reshape(n, tokens, record)


@settings(max_examples=60, deadline=None, print_blob=True)
@given(seed=st.integers(0, 2 ** 32), name=st.sampled_from(HERE), format=st.sampled_from(FORMATS),
       t=st.integers(0, 9), surplus=st.integers(0, 3), page_tokens=st.sampled_from([1, 2, 16, 61]),
       ratio=st.sampled_from([1, 2]), size=st.sampled_from([1e-6, 1.0, 1e4]))
def test_insert_stores_the_oracle_s_bytes(seed, name, format, t, surplus, page_tokens, ratio, size):
    rng, fw = np.random.default_rng(seed), make_framework(name)
    pages = oracle.Pages(format, 3, page_tokens)
    rows = bf16_noise(rng, (t + surplus, 512), size)
    positions = rng.integers(0, 30, t + surplus).astype(np.int64)
    slots = rng.permutation(max(pages.capacity, 16))[:t].astype(np.int64)
    slots[slots >= pages.capacity] = -7  # writes nothing
    cos_sin = angles(rng, 30)
    got = insert(fw, pages, rows, positions, slots, cos_sin, ratio=ratio)
    expected_insert(pages, rows, positions, slots, cos_sin, ratio)
    assert np.array_equal(got, pages.bytes)


@pytest.mark.parametrize("format", FORMATS)
def test_insert_then_gather_gives_the_records_back(fw, format):
    rng = np.random.default_rng(3)
    pages = oracle.Pages(format, 4, 16)
    rows, cos_sin = bf16_noise(rng, (40, 512)), angles(rng, 64)
    positions = np.arange(40, dtype=np.int64)
    table = np.array([[2, 0, 3], [1, 9, -1]], np.int32)  # the second request has one good page
    slots = table[0][positions // 16].astype(np.int64) * 16 + positions % 16
    arguments = cache_arguments(fw, pages, "")
    megamla.kv_insert(fw.put(rows, "bf16"), fw.put(positions), fw.put(slots), fw.put(cos_sin),
                      **arguments)
    expected_insert(pages, rows, positions, slots, cos_sin, 1)
    out = fw.get(megamla.kv_gather(block_table=fw.put(table), gather_lens=fw.put(np.array([33, 20], np.int32)),
                                   seq_lens=fw.put(np.array([40, 30], np.int32)), rows=36, offset=2,
                                   **arguments))
    assert out.shape == (2, 36, 512)
    assert np.array_equal(oracle.bf16_value(out[0, 2:35]), pages.load(slots[7:]))
    assert np.all(out[1, 2 + 6:22] == 0), "a page outside the cache gives rows of 0"


def expected_gather(pages, table, seq_lens, query_lens, ratio, window, rows, offset):
    """All records of each request, or those of its query and of the window before it; the rest is None."""
    want = [[None] * rows for _ in seq_lens]
    for r, seq in enumerate(np.maximum(seq_lens, 0)):
        query = min(query_lens[r], seq)
        n = query + min(seq - query, window - 1) if window > 0 else seq // ratio
        for i in range(n):
            page, at = divmod(int(seq // ratio - n + i), pages.page_tokens)
            known = page < table.shape[1] and 0 <= table[r, page] < len(pages.bytes)
            want[r][offset + i] = (pages.load(table[r, page] * pages.page_tokens + at) if known
                                   else np.zeros(512))
    return want


@settings(max_examples=40, deadline=None, print_blob=True)
@given(seed=st.integers(0, 2 ** 32), name=st.sampled_from(HERE), format=st.sampled_from(FORMATS),
       of=st.sampled_from([(1, 0), (2, 0), (1, 1), (1, 7), (1, 100)]), requests=st.integers(0, 3))
def test_gather_takes_records_of_a_ratio_or_a_window(seed, name, format, of, requests):
    (ratio, window), rng, fw = of, np.random.default_rng(seed), make_framework(name)
    pages = oracle.Pages(format, 3, 16)
    pages.store(np.arange(48), rng.standard_normal((48, 512)).astype(np.float32))
    table = rng.integers(-1, 4, (requests, 2)).astype(np.int32)
    seq_lens = rng.integers(-2, 40, requests).astype(np.int32)
    query_lens = rng.integers(0, 9, requests)  # at times more than the sequence has
    start = np.concatenate([[0], np.cumsum(query_lens)]).astype(np.int32)
    out = None if name.startswith("jax") else fw.put(np.full((requests, 45, 512), 9, np.uint16), "bf16")
    got = fw.get(megamla.kv_gather(
        block_table=fw.put(table), seq_lens=fw.put(seq_lens), ratio=ratio, window=window,
        query_start=fw.put(start) if window > 0 else None, rows=45, offset=5, out=out,
        **cache_arguments(fw, pages, "")))
    want = expected_gather(pages, table, seq_lens, query_lens, ratio, window, 45, 5)
    for rows, wanted in zip(got, want):
        for row, value in zip(rows, wanted):
            if value is not None:
                assert np.array_equal(oracle.bf16_value(row), value)
            else:
                assert out is None or np.all(row == 9)


def test_gather_leaves_what_the_window_does_not_show(cpu_fw):
    if cpu_fw.name.startswith("jax"):
        pytest.skip("JAX's arrays are not written by their users")
    out = cpu_fw.put(np.full((1, 20, 512), 9, np.uint16), "bf16")
    arguments = [cpu_fw.put(x) for x in (np.zeros((1, 16, 528), np.uint8), np.zeros((1, 1), np.int32),
                                         np.array([12], np.int32))]
    megamla.kv_gather(*arguments, out=out, offset=3, window=4,
                      query_start=cpu_fw.put(np.array([0, 2], np.int32)))
    written = np.all(cpu_fw.get(out)[0] != 9, axis=1)
    assert list(np.flatnonzero(written)) == [3, 4, 5, 6, 7]  # the query of 2, and 3 before it
    # gather_lens, when given, says all that there is to say.
    megamla.kv_gather(*arguments, cpu_fw.put(np.array([9], np.int32)), out=out, offset=3, window=4)
    assert np.all(cpu_fw.get(out)[0, 3:12] != 9) and np.all(cpu_fw.get(out)[0, 12:] == 9)


def test_gathers_into_any_rows_share_a_plan():
    def gather(rows, offset):
        out = megamla.kv_gather(np.ones((1, 16, 288), np.uint8), np.zeros((1, 3), np.int32),
                                np.array([4], np.int32), rows=rows, offset=offset)
        assert out.shape == (1, rows, 512)

    gather(7, 1)
    before = megamla.plan_counts()
    for rows, offset in ((7, 3), (99, 95), (4, 0)):
        gather(rows, offset)
    assert megamla.plan_counts() == before


def test_rows_and_tables_may_have_strides(fw):
    rng = np.random.default_rng(8)
    pages = oracle.Pages("v41_fp8", 3, 16)
    rows, cos_sin = bf16_noise(rng, (6, 512)), angles(rng, 64)
    wide = np.full((6, 536), 0x7FFF, np.uint16)
    wide[:, :512] = rows
    positions, slots = np.arange(6, dtype=np.int64), np.array([3, 17, 40, 1, -1, 9], np.int64)
    cache = fw.put(pages.bytes)
    megamla.kv_insert(fw.put(wide, "bf16")[:, :512], fw.put(positions), fw.put(slots),
                      fw.put(cos_sin), cache)
    expected_insert(pages, rows, positions, slots, cos_sin, 1)
    assert np.array_equal(fw.get(cache), pages.bytes)
    table = np.array([[0, 9, 9], [2, 9, 9]], np.int32)
    out = megamla.kv_gather(fw.put(pages.bytes), fw.put(table)[:, :1],
                            fw.put(np.array([2, 9], np.int32)), fw.put(np.array([1, 1], np.int32)),
                            rows=1)
    assert np.array_equal(oracle.bf16_value(fw.get(out))[:, 0], pages.load(np.array([1, 40])))


def test_gather_into_given_rows_leaves_the_others(cpu_fw):
    if cpu_fw.name.startswith("jax"):
        pytest.skip("JAX's arrays are not written by their users")
    pages = oracle.Pages("v41_fp8", 1, 16)
    pages.store(np.arange(16), np.ones((16, 512)))
    out = cpu_fw.put(np.full((1, 20, 512), 9, np.uint16), "bf16")
    result = megamla.kv_gather(cpu_fw.put(pages.bytes), cpu_fw.put(np.zeros((1, 1), np.int32)),
                               cpu_fw.put(np.array([5], np.int32)), out=out)
    got = cpu_fw.get(out)
    assert result is out
    assert np.all(got[0, :5] == oracle.bf16_bits(np.float32(1))) and np.all(got[0, 5:] == 9)


def test_norm_comes_before_the_rotation(cpu_fw):
    rng = np.random.default_rng(5)
    pages = oracle.Pages("v4", 1, 16)
    rows, cos_sin = bf16_noise(rng, (4, 512), 3.0), angles(rng, 8)
    weight = rng.standard_normal(512).astype(np.float32)
    at = np.arange(4, dtype=np.int64)
    got = oracle.Pages("v4", 1, 16)
    got.bytes[:] = insert(cpu_fw, pages, rows, at, at, cos_sin, norm_weight=cpu_fw.put(weight))
    x = oracle.bf16_value(rows)
    normed = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-20) * weight
    want = oracle.rotate(oracle.bf16_value(oracle.bf16_bits(normed)), cos_sin[at])
    assert np.abs(got.load(at) - want).max() < 0.07 * np.abs(want).max()


def test_index_keys_have_their_own_records(cpu_fw):
    rng = np.random.default_rng(6)
    for format, bytes_ in (("index_fp8", 132), ("index_fp4", 68)):
        cache = cpu_fw.put(np.full((2, 16, bytes_), 0xFF, np.uint8))
        at = cpu_fw.put(np.arange(3, dtype=np.int64))
        megamla.kv_insert(cpu_fw.put(bf16_noise(rng, (3, 128)), "bf16"), at, at,
                          cpu_fw.put(angles(rng, 8)), cache)
        flat = cpu_fw.get(cache).reshape(2, -1)
        data = 128 if format == "index_fp8" else 64
        assert np.any(flat[0, :3 * data] != 0xFF) and np.all(flat[0, 3 * data:16 * data] == 0xFF)


def test_refused_rows_are_counted_and_the_others_written(cpu_fw):
    rng = np.random.default_rng(7)
    pages = oracle.Pages("v41_fp8", 1, 16)
    rows, cos_sin = bf16_noise(rng, (3, 512)), angles(rng, 8)
    faults = cpu_fw.put(np.array([2], np.int32))
    cache = cpu_fw.put(pages.bytes)
    with pytest.raises(ValueError, match="^slots: "):
        megamla.kv_insert(cpu_fw.put(rows, "bf16"), cpu_fw.put(np.arange(3, dtype=np.int64)),
                          cpu_fw.put(np.array([4, 16, 5], np.int64)), cpu_fw.put(cos_sin), cache,
                          n_faults=faults)
    if not cpu_fw.name.startswith("jax"):
        assert cpu_fw.get(faults)[0] == 3
    expected_insert(pages, rows, np.arange(3), [4, 16, 5], cos_sin, 1)
    assert np.array_equal(cpu_fw.get(cache), pages.bytes)


def test_a_gpu_s_workspace_must_be_given_with_overlap(fw):
    if fw.device == "cpu" or fw.name.startswith("jax"):
        pytest.skip("a CPU needs none, and JAX's arrays are not written by their users")
    n = 2049
    rows, at = fw.put(np.zeros((n, 512), np.uint16), "bf16"), fw.put(np.arange(n, dtype=np.int64))
    cache, table = fw.put(np.zeros((129, 16, 528), np.uint8)), fw.put(np.zeros((n, 64), np.float32))
    with pytest.raises(ValueError, match="^workspace: is None, must be given with overlap: [0-9]+ b"):
        megamla.kv_insert(rows, at, at, table, cache, overlap=True)
    megamla.kv_insert(rows, at, at, table, cache, overlap=True,
                      workspace=fw.put(np.zeros(1 << 20, np.uint8)))
    others = fw.put(np.arange(n, n + 9, dtype=np.int64))
    megamla.kv_insert(rows[:9], at[:9], others, table, cache, overlap=True)  # which needs none


def test_rope_table_is_what_turning_by_the_angle_needs():
    table = megamla.rope_table(40, theta=10000.0, first=100)
    angle = np.float32(1) * np.arange(100, 140, dtype=np.float32)[:, None] * (
        10000.0 ** (-np.arange(32) / 32)).astype(np.float32)
    assert np.abs(table[:, :32] - np.cos(angle.astype(np.float64))).max() < 1e-6
    assert np.abs(table[:, 32:] - np.sin(angle.astype(np.float64))).max() < 1e-6
    assert np.array_equal(megamla.rope_table(5, ratio=0), megamla.rope_table(5, theta=10000.0))
    assert np.array_equal(
        megamla.rope_table(70000, ratio=2)[-1],
        megamla.rope_table(1, theta=160000.0, yarn_factor=16.0, first=69999)[0])


def test_rope_table_fills_a_given_tensor(torch):
    out = torch.empty(6, 64)
    assert megamla.rope_table(ratio=1, out=out) is out
    assert np.array_equal(out.numpy(), megamla.rope_table(6, ratio=1))


WRONG = [
    ("kv_insert", "rows", np.zeros((3, 511), np.uint16), "rows: has 511 in dimension 1, must have 512"),
    ("kv_insert", "rows", np.zeros((3, 512), np.float32), "rows: holds float32"),
    ("kv_insert", "positions", np.zeros(3, np.int32), "positions: holds int32, must hold int64"),
    ("kv_insert", "positions", np.zeros(4, np.int64), "positions: has 4 in dimension 0, must have 3"),
    ("kv_insert", "slots", np.zeros(4, np.int64), "slots: has 4, must have at most 3"),
    ("kv_insert", "cos_sin", np.zeros((8, 32), np.float32), "cos_sin: has 32 in dimension 1"),
    ("kv_insert", "cache", np.zeros((1, 16, 529), np.uint8), "cache: has records of 529 bytes"),
    ("kv_insert", "ratio", 3, "ratio: is 3, must be"),
    ("kv_insert", "overlap", 2, "overlap: is 2, must be 0 .. 1"),
    ("kv_insert", "overlap", None, "overlap: is not an integer"),
    ("kv_insert", "scale_floor", "none", "scale_floor: is 'none', must be one of amax, scale"),
    ("kv_insert", "norm_weight", np.zeros(8, np.float32), "norm_weight: has 8 in dimension 0"),
    ("kv_gather", "cache", np.zeros((1, 16, 132), np.uint8), "cache: has records of 132 bytes"),
    ("kv_gather", "block_table", np.zeros((1, 0), np.int32), "block_table: table_width is 0"),
    ("kv_gather", "block_table", np.zeros((2, 1), np.int32), "block_table: has 2 in dimension 0"),
    ("kv_gather", "seq_lens", np.zeros(1, np.int64), "seq_lens: holds int64, must hold int32"),
    ("kv_gather", "gather_lens", np.zeros(2, np.int32), "gather_lens: has 2 in dimension 0"),
    ("kv_gather", "ratio", 0, "ratio: is 0, must be 1 .. 2"),
    ("kv_gather", "ratio", 3, "ratio: is 3, must be 1 .. 2"),
    ("kv_gather", "window", -1, "window: is -1, must be 0"),
    ("kv_gather", "window", 4, "query_start: is None, must be given with window"),
    ("kv_gather", "query_start", np.zeros(1, np.int32), "query_start: has 1 in dimension 0, must have 2"),
    ("kv_gather", "query_start", np.zeros(2, np.int64), "query_start: holds int64, must hold int32"),
    ("kv_gather", "rows", None, "rows: is None, must be given"),
    ("kv_gather", "rows", 0, "out: rows is 0, must be"),
    ("kv_gather", "offset", 9, "offset: is 9, must be 0 .. 8"),
    ("kv_gather", "offset", -1, "offset: is -1, must be 0"),
    ("rope_table", "positions", -1, "positions: is -1, must be a number of rows"),
    ("rope_table", "ratio", 3, "ratio: is 3, must be 0"),
    ("rope_table", "first", -1, "first: is -1"),
]


@pytest.mark.parametrize("function, name, value, message", WRONG)
def test_wrong_arguments_are_named(function, name, value, message):
    good = {
        "kv_insert": dict(rows=np.zeros((3, 512), np.uint16), positions=np.zeros(3, np.int64),
                          slots=np.arange(3), cos_sin=np.zeros((8, 64), np.float32),
                          cache=np.zeros((1, 16, 528), np.uint8)),
        "kv_gather": dict(cache=np.zeros((1, 16, 528), np.uint8), rows=8,
                          block_table=np.zeros((1, 1), np.int32), seq_lens=np.ones(1, np.int32)),
        "rope_table": dict(positions=4),
    }[function]
    getattr(megamla, function)(**good)
    with pytest.raises(ValueError, match="^" + message):
        getattr(megamla, function)(**{**good, name: value})


def test_a_window_of_records_of_two_tokens_is_refused():
    with pytest.raises(ValueError, match="^window: is 4, must be 0 for records of ratio 2"):
        megamla.kv_gather(np.zeros((1, 16, 528), np.uint8), np.zeros((1, 1), np.int32),
                          np.ones(1, np.int32), rows=8, ratio=2, window=4,
                          query_start=np.zeros(2, np.int32))
