"""prefill_case.py - a call of attend_prefill with inputs that hurt, and what it gives.

Requests of any length, some without a query or without a prefix, and padding after the last; pages in
any order, tables with illegal entries behind those that are used; records that nobody picks and window
rows that nobody sees are NaN.
"""

import numpy as np

import megamla
import oracle
from attend_case import SPECIAL_ENTRIES, AttendCase, angles, bf16_noise, cache_arguments


def block_table(rng, lens, page_tokens, spare=2):
    """Pages of each request in random order, and how many pages there are."""
    counts = [-(-int(n) // page_tokens) for n in lens]
    n_pages = sum(counts) + spare
    table = rng.choice(np.array(SPECIAL_ENTRIES + (n_pages,), np.int64),
                       (len(counts), max(counts, default=0) + 1)).astype(np.int32)
    free = rng.permutation(n_pages)
    for r, count in enumerate(counts):
        table[r, :count], free = free[:count], free[count:]
    return table, n_pages


def slots_of(table, r, positions, page_tokens):
    positions = np.asarray(positions, np.int64)
    return table[r, positions // page_tokens].astype(np.int64) * page_tokens + positions % page_tokens


class PrefillCase(AttendCase):
    """Attributes are NumPy arrays by the names of attend_prefill; `keywords` the numbers."""

    function = staticmethod(megamla.attend_prefill)
    kv = None

    def __init__(self, seed, lens=((3, 0), (2, 9), (1, 30)), padding=2, heads=16, window=7, topk=5,
                 formats=("v41_fp8", "v41_fp4"), page_tokens=(16, 5), ratio=2,
                 out_form="fp8_permuted", q_layout="standard", sink=True, max_logits=True):
        """lens: tokens of each request's query, and before it."""
        rng = np.random.default_rng(seed)
        self.query_lens = np.array([n for n, _ in lens], np.int32).reshape(-1)
        self.seq_lens = np.array([n + before for n, before in lens], np.int32).reshape(-1)
        self.query_start = np.concatenate([[0], np.cumsum(self.query_lens)]).astype(np.int32)
        t, self.heads, self.out_form = int(self.query_start[-1]) + padding, heads, out_form
        self.q_standard = bf16_noise(rng, (t, heads, 512))
        self.q = oracle.q_fused(self.q_standard) if q_layout == "fused" else self.q_standard
        self.request = np.concatenate([np.repeat(np.arange(len(lens)), self.query_lens),
                                       np.full(padding, -1)]).astype(np.int32)
        self.positions = np.zeros(t, np.int32)
        for i in np.flatnonzero(self.request >= 0):
            r = self.request[i]
            self.positions[i] = self.seq_lens[r] - self.query_lens[r] + i - self.query_start[r]
        self.cos_sin = angles(rng, int(self.seq_lens.max(initial=0)) + 1)
        self.sink = rng.standard_normal(heads).astype(np.float32) if sink else None
        self.width = window
        self.keywords = dict(scale=0.05, out_form=out_form, q_layout=q_layout, window=window,
                             max_logits=max_logits)
        self.rows_of_token = [np.zeros((0, 512)) for _ in range(t)]
        seen = [range(max(p - window + 1, 0), p + 1) for p in self.positions]
        self.window_table, n_pages = block_table(rng, self.seq_lens, page_tokens[0])
        self.window = self._fill(rng, formats[0], self.window_table, n_pages, page_tokens[0], seen)
        self.compressed = self.compressed_table = self.topk = None
        if formats[1] is not None:
            self.keywords["ratio"] = ratio
            self._make_picks(rng, topk, ratio)
            picked = [row[row >= 0] for row in self.topk]
            self.compressed_table, n_pages = block_table(rng, self.seq_lens // ratio, page_tokens[1])
            self.compressed = self._fill(rng, formats[1], self.compressed_table, n_pages,
                                         page_tokens[1], picked)
        self.n = max([0] + [int(n) // ratio for n in self.seq_lens if formats[1] is not None])
        self.m = max(self.n + max([0] + [n + min(before, window - 1) for n, before in lens]), 1)

    def _make_picks(self, rng, width, ratio):
        """For each token records that it sees, in any order, some of them twice."""
        self.topk = np.full((len(self.request), width), -1, np.int32)
        for i in np.flatnonzero(self.request >= 0):
            records = (self.positions[i] + 1) // ratio
            count = int(rng.integers(0, min(width, records) + 1))
            self.topk[i, :count] = rng.integers(0, max(records, 1), count)

    def _fill(self, rng, format, table, n_pages, page_tokens, positions):
        """A cache with the records of these positions of each token; they become its keys."""
        cache = oracle.Pages(format, n_pages, page_tokens)
        tokens = np.flatnonzero(self.request >= 0)
        slots = {i: slots_of(table, self.request[i], positions[i], page_tokens) for i in tokens}
        stored = np.unique(np.concatenate([*slots.values(), np.zeros(0, np.int64)]))
        cache.store(stored, rng.standard_normal((len(stored), 512)).astype(np.float32))
        for i in tokens:
            self.rows_of_token[i] = np.concatenate([self.rows_of_token[i], cache.load(slots[i])])
        return cache

    @property
    def max_rows(self):
        """As many as the workspace of this call takes."""
        return max(len(self.seq_lens), 1) * self.m

    def by_workspace(self):
        """Keywords that send the call there."""
        return dict(route="workspace", max_rows=self.max_rows, host_query_lens=self.query_lens,
                    host_seq_lens=self.seq_lens)

    def arguments(self, fw):
        def put(array, kind=None):
            return None if array is None else fw.put(array, kind)

        two = self.compressed is not None
        return {"q": put(self.q, "bf16"), "positions": put(self.positions),
                "cos_sin": put(self.cos_sin), "sink": put(self.sink),
                "query_start": put(self.query_start), "seq_lens": put(self.seq_lens),
                **cache_arguments(fw, self.window, "window_"), "window_table": put(self.window_table),
                **cache_arguments(fw, self.compressed, "compressed_"),
                "compressed_table": put(self.compressed_table), "topk": put(self.topk),
                "request": put(self.request) if two else None}
