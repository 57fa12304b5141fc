"""The index builders against plain Python, on every framework."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import megamla
from conftest import make_framework
from test_attend import HERE

PAGE, PAGES = 4, 40


def slot(table, request, position):
    """Of a position of a request; -1 where the table leads nowhere."""
    place = position // PAGE
    if not 0 <= place < table.shape[1] or not 0 <= table[request, place] < PAGES:
        return -1
    return int(table[request, place]) * PAGE + position % PAGE


def assert_rows(fw, result, rows, valid):
    """Entries that are not -1, closed up, then -1; nothing for padding."""
    table, lens = fw.get(result.list), fw.get(result.lens)
    assert len(table) == len(rows)
    for got, n, want, good in zip(table, lens, rows, valid):
        want = [entry for entry in want if entry != -1] if good else []
        assert list(got[:n]) == want and np.all(got[n:] == -1)


class Batch:
    """Requests with queries at the end of their sequences, and some padding after the last."""

    def __init__(self, seed, padding=2):
        rng = np.random.default_rng(seed)
        self.lens = rng.integers(0, 4, rng.integers(0, 4)).astype(np.int32)
        self.start = np.concatenate([[0], np.cumsum(self.lens)]).astype(np.int32)
        self.seq = (self.lens + rng.integers(0, 30, len(self.lens))).astype(np.int32)
        self.t = int(self.start[-1]) + padding
        self.table = rng.integers(-1, PAGES + 1, (len(self.lens), 6)).astype(np.int32)
        self.valid = rng.random(self.t) < 0.8
        self.request = np.repeat(np.arange(len(self.lens)), self.lens).astype(np.int32)
        self.request = np.concatenate([self.request, np.full(padding, -1, np.int32)])
        self.rng = rng

    def position(self, t):
        q = self.request[t]
        return int(self.seq[q] - self.lens[q] + t - self.start[q])

    def good(self):
        return self.valid & (self.request >= 0)


def batches(function):
    return settings(max_examples=40, deadline=None, print_blob=True)(
        given(seed=st.integers(0, 2 ** 32), name=st.sampled_from(HERE))(function))


@batches
def test_window_list(seed, name):
    b, fw = Batch(seed), make_framework(name)
    result = megamla.window_list(fw.put(b.start), fw.put(b.seq), fw.put(b.table), page_tokens=PAGE,
                                 n_pages=PAGES, window=7, width=9, valid=fw.put(b.valid))
    rows = [[] if b.request[t] < 0 else
            [slot(b.table, b.request[t], p) for p in range(max(b.position(t) - 6, 0), b.position(t) + 1)]
            for t in range(b.t)]
    assert result.list.shape == (b.t, 9)
    assert_rows(fw, result, rows, b.good())


@batches
def test_draft_list(seed, name):
    b, fw = Batch(seed), make_framework(name)
    result = megamla.draft_list(fw.put(b.start), fw.put(b.seq), fw.put(b.table), page_tokens=PAGE,
                                n_pages=PAGES, window=5, width=12, valid=fw.put(b.valid))
    rows = []
    for t in range(b.t):
        q = b.request[t]
        rows.append([] if q < 0 else [slot(b.table, q, p) for p in
                                      range(max(b.seq[q] - b.lens[q] - 5, 0), b.seq[q])])
    assert_rows(fw, result, rows, b.good())


@batches
def test_compressed_list(seed, name):
    b, fw = Batch(seed), make_framework(name)
    topk = b.rng.integers(-2, 26, (b.t, 5)).astype(np.int32)
    result = megamla.compressed_list(fw.put(topk), fw.put(b.request), fw.put(b.table),
                                     page_tokens=PAGE, n_pages=PAGES, valid=fw.put(b.valid))
    rows = [[] if b.request[t] < 0 else [slot(b.table, b.request[t], j) for j in topk[t] if j >= 0]
            for t in range(b.t)]
    assert_rows(fw, result, rows, b.good())


@batches
def test_combined_list(seed, name):
    b, fw = Batch(seed), make_framework(name)
    topk = b.rng.integers(-1, 14, (b.t, 6)).astype(np.int32)
    gather = np.minimum(b.seq, b.lens + np.minimum(b.seq - b.lens, 6)).astype(np.int32)
    told = fw.put(gather) if b.rng.random() < 0.5 else None  # the same, as window is 7
    result = megamla.combined_list(fw.put(topk), fw.put(b.start), fw.put(b.seq), told, ratio=2,
                                   topk_limit=4, request_rows=30, window_offset=12, window=7,
                                   width=16, valid=fw.put(b.valid))
    rows = []
    for t in range(b.t):
        q = b.request[t]
        if q < 0:
            rows.append([])
            continue
        p = b.position(t)
        seen = (p + 1) // 2
        row = [q * 30 + j for j in topk[t, :min(seen, 4)] if 0 <= j < min(seen, 12)]
        first = b.seq[q] - gather[q]
        rows.append(row + [q * 30 + 12 + i - first for i in range(max(p - 6, first, 0), p + 1)])
    assert_rows(fw, result, rows, b.good())


def combined(rows, offset, **more):
    return megamla.combined_list(np.array([[1, 0, -1]], np.int32), np.array([0, 1], np.int32),
                                 np.array([6], np.int32), ratio=2, topk_limit=3, request_rows=rows,
                                 window_offset=offset, window=4, width=7, **more)


def test_combined_lists_of_any_workspace_share_a_plan():
    combined(20, 9)
    before = megamla.plan_counts()
    for rows, offset in ((20, 3), (7, 3), (99, 90)):
        result = combined(rows, offset)
        assert list(result.list[0]) == [1, 0, offset, offset + 1, offset + 2, offset + 3, -1]
        assert result.lens[0] == 6
    assert megamla.plan_counts() == before


@pytest.mark.parametrize("rows, offset, message", [
    (-1, 0, "request_rows: is -1, must be 0"), (2 ** 31, 0, "request_rows: is 2147483648, must be 0"),
    (0, 1, "window_offset: is 1, must be 0"), (8, 9, "window_offset: is 9, must be 0 .. 8"),
    (8, -1, "window_offset: is -1, must be 0 .. 8")])
def test_a_workspace_that_cannot_be_is_named(rows, offset, message):
    with pytest.raises(ValueError, match="^" + message):
        combined(rows, offset)


def test_a_workspace_without_rows_gives_empty_lists():
    result = combined(0, 0)
    assert np.all(result.list == -1) and result.lens[0] == 0


@batches
def test_slots_of_writers(seed, name):
    b, fw = Batch(seed), make_framework(name)
    positions = np.array([b.position(t) if b.request[t] >= 0 else 0 for t in range(b.t)], np.int64)
    slots = np.where(b.valid, 3, -1).astype(np.int64)
    arguments = fw.put(positions), fw.put(slots), fw.put(b.request)
    got = fw.get(megamla.compressed_slots(*arguments, fw.put(b.table), ratio=2, page_tokens=PAGE,
                                          n_pages=PAGES))
    rings = b.rng.integers(0, 5, len(b.lens)).astype(np.int32)
    ringed = fw.get(megamla.ring_slots(*arguments, fw.put(rings), ring_tokens=8, n_rings=4))
    for t in range(b.t):
        q, p = b.request[t], positions[t]
        good = b.valid[t] and q >= 0
        assert got[t] == (slot(b.table, q, p // 2) if good and p % 2 == 1 else -1)
        ring = rings[q] if good else 0
        assert ringed[t] == (ring * 8 + p % 8 if 1 <= ring < 4 else -1)


def test_tables_may_have_strides(fw):
    """Block tables, positions and results that are parts of wider arrays."""
    b = Batch(13)
    topk = b.rng.integers(-2, 26, (b.t, 5)).astype(np.int32)
    narrow = megamla.compressed_list(fw.put(topk), fw.put(b.request), fw.put(b.table),
                                     page_tokens=PAGE, n_pages=PAGES, width=7)

    def wide(array):
        whole = np.full((array.shape[0], array.shape[1] + 3), -5, np.int32)
        whole[:, :array.shape[1]] = array
        return fw.put(whole)[:, :array.shape[1]]

    given = None if fw.name.startswith("jax") else wide(np.zeros((b.t, 7), np.int32))
    result = megamla.compressed_list(wide(topk), fw.put(b.request), wide(b.table), page_tokens=PAGE,
                                     n_pages=PAGES, width=7, list=given)
    assert given is None or result.list is given
    assert np.array_equal(fw.get(result.list), fw.get(narrow.list))
    windows = [megamla.window_list(fw.put(b.start), fw.put(b.seq), table, page_tokens=PAGE,
                                   n_pages=PAGES, n_tokens=b.t, window=9)
               for table in (fw.put(b.table), wide(b.table))]
    assert np.array_equal(fw.get(windows[0].list), fw.get(windows[1].list))


def test_calls_that_overlap_give_the_same(fw):
    """A decode step: an insert and what may run beside it. On a CPU overlap means nothing."""
    if fw.name.startswith("jax"):
        pytest.skip("JAX's arrays are not written by their users")
    b = Batch(7, padding=0)
    assert len(b.lens) == 3 and b.t > 3
    at = fw.put(np.array([b.position(t) for t in range(b.t)], np.int64))
    slots, request, table = fw.put(np.arange(b.t, dtype=np.int64)), fw.put(b.request), fw.put(b.table)
    rows = fw.put(b.rng.integers(0, 0x4000, (b.t, 512)).astype(np.uint16), "bf16")
    topk = fw.put(b.rng.integers(-2, 26, (b.t, 5)).astype(np.int32))
    start, seq, angles = fw.put(b.start), fw.put(b.seq), fw.put(megamla.rope_table(40, ratio=0))
    pages = dict(page_tokens=PAGE, n_pages=PAGES)

    def step(overlap, given):
        def to(name, results=("list", "lens")):
            return {key: given[name][i] for i, key in enumerate(results)} if given else {}

        other, cache = (fw.put(np.zeros((PAGES, PAGE, 528), np.uint8)) for _ in range(2))
        megamla.kv_insert(rows, at, slots, angles, other)
        megamla.kv_insert(rows, at, slots, angles, cache, overlap=overlap)
        more = dict(overlap=overlap)
        return {"cache": [cache],
                "window": megamla.window_list(start, seq, table, **pages, **more, n_tokens=b.t, window=7,
                                              **to("window")),
                "draft": megamla.draft_list(start, seq, table, **pages, **more, n_tokens=b.t, window=5,
                                            **to("draft")),
                "picks": megamla.compressed_list(topk, request, table, **pages, **more, **to("picks")),
                "rows": megamla.combined_list(topk, start, seq, ratio=2, topk_limit=4, request_rows=60,
                                              window_offset=20, window=7, **more, **to("rows")),
                "slots": [megamla.compressed_slots(at, slots, request, table, ratio=2, **pages, **more,
                                                   **to("slots", ["out"]))],
                "ring": [megamla.ring_slots(at, slots, request, fw.put(np.array([1, 2, 3], np.int32)),
                                            ring_tokens=8, n_rings=4, **more, **to("ring", ["out"]))]}

    want = step(False, None)
    given = {name: [fw.put(np.full_like(fw.get(x), 77)) for x in results]
             for name, results in want.items()}
    got = step(True, given)
    for name, results in want.items():
        for a, x in zip(got[name], results):
            assert np.array_equal(fw.get(a), fw.get(x)), name


def test_results_of_calls_that_overlap_must_be_given():
    batch = [np.array([0, 1], np.int32), np.array([6], np.int32), np.zeros((1, 3), np.int32)]
    slots = [np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int32)]
    pages = dict(page_tokens=4, n_pages=1, overlap=True)
    lens = np.zeros(1, np.int32)
    for name, call in (
            ("list", lambda: megamla.window_list(*batch, **pages, lens=lens)),
            ("lens", lambda: megamla.window_list(*batch, **pages, list=np.zeros((1, 128), np.int32))),
            ("list", lambda: megamla.draft_list(*batch, **pages, lens=lens)),
            ("list", lambda: megamla.compressed_list(batch[2], lens, batch[2], **pages, lens=lens)),
            ("list", lambda: combined(20, 9, overlap=True, lens=lens)),
            ("out", lambda: megamla.compressed_slots(*slots, batch[2], ratio=1, **pages)),
            ("out", lambda: megamla.ring_slots(*slots, lens, ring_tokens=4, n_rings=1, overlap=True))):
        with pytest.raises(ValueError, match="^%s: is None, must be given with overlap" % name):
            call()


def test_image_spans_reach_into_their_image(fw):
    reach = megamla.image_spans(fw.put(np.array([0, 6], np.int32)), fw.put(np.array([10], np.int32)),
                                fw.put(np.array([0, 1], np.int32)),
                                fw.put(np.array([[5, 7]], np.int32)), image_tokens=4, n_tokens=6)
    assert list(fw.get(reach.left)) == [0, 0, 1, 2, 0, 0]
    assert list(fw.get(reach.right)) == [0, 2, 1, 0, 0, 0]


def test_builders_on_every_framework(fw):
    b = Batch(11)
    result = megamla.window_list(fw.put(b.start), fw.put(b.seq), fw.put(b.table), page_tokens=PAGE,
                                 n_pages=PAGES, n_tokens=b.t)
    assert result.list.shape == (b.t, 128) and result.lens.shape == (b.t,)


def test_prefill_chunks_cover_every_request_in_order():
    query, seq = [5, 700, 1, 3000, 2], [5, 900, 400, 3000, 90000]
    chunks = list(megamla.prefill_chunks(query, seq, ratio=2, max_model_tokens=2000,
                                         max_batch_tokens=500))
    assert [c.first for c in chunks] == [0] + [c.last for c in chunks[:-1]]
    assert chunks[-1].last == 5 and len(chunks) > 1
    for c in chunks:
        gathered = [q + min(s - q, 127) for q, s in zip(query, seq)][c.first:c.last]
        assert c.n == max(s // 2 for s in seq[c.first:c.last]) and c.m == c.n + max(gathered)


WRONG = [
    (dict(block_table=np.zeros((2, 3), np.int64)), "block_table: holds int64"),
    (dict(block_table=np.zeros((3, 3), np.int32)), "block_table: has 3 in dimension 0"),
    (dict(query_start=np.zeros(2, np.int32)), "query_start: has 2 in dimension 0, must have 3"),
    (dict(query_start=np.array([0, 3, 2], np.int32)), "query_start: "),
    (dict(valid=np.zeros(3, bool)), "valid: has 3 in dimension 0, must have 4"),
    (dict(window=0), "window: is 0"), (dict(width=3), "list: width is 3"),
    (dict(page_tokens=0), "page_tokens: is 0"), (dict(n_pages=-1), "n_pages: is -1"),
    (dict(n_tokens=None), "n_tokens: is None, must be given"),
    (dict(lens=np.zeros(4, np.int64)), "lens: holds int64"),
    (dict(overlap=2, list=np.zeros((4, 4), np.int32), lens=np.zeros(4, np.int32)),
     "overlap: is 2, must be 0"),
]


@pytest.mark.parametrize("wrong, message", WRONG)
def test_wrong_arguments_are_named(wrong, message):
    good = dict(query_start=np.array([0, 2, 3], np.int32), seq_lens=np.array([9, 4], np.int32),
                block_table=np.zeros((2, 3), np.int32), page_tokens=4, n_pages=1, n_tokens=4, window=4)
    megamla.window_list(**good)
    with pytest.raises(ValueError, match="^" + message):
        megamla.window_list(**{**good, **wrong})
