"""attend_case.py - a call of attend_paged or attend_rows with inputs that hurt, and what it gives.

Lists have holes, repeated and illegal entries, lengths of 0; what they do not name is NaN.
"""

import functools

import numpy as np

import megamla
import oracle

SPECIAL_ENTRIES = (-1, -123456, -2 ** 31, 2 ** 31 - 1)


def bf16_noise(rng, shape, size=1.0):
    return oracle.bf16_bits((rng.standard_normal(shape) * size).astype(np.float32))


def angles(rng, positions):
    a = rng.uniform(0, 6.28, (positions, 32))
    return np.concatenate([np.cos(a), np.sin(a)], 1).astype(np.float32)


def entries(rng, t, width, capacity):
    """A list, and lengths that may end it early."""
    table = rng.integers(0, max(capacity, 1), (t, width)).astype(np.int32)
    odd = rng.random((t, width)) < 0.2
    table[odd] = rng.choice(np.array(SPECIAL_ENTRIES + (capacity,), np.int64), odd.sum())
    return table, rng.integers(0, width + 1, t).astype(np.int32)


def cache_arguments(fw, pages, prefix):
    """A cache as [pages, tokens, record bytes], or when its pages would not begin at multiples of 16,
    as rows of padded pages."""
    if pages is None:
        return {}
    n, tokens, record = pages.bytes.shape
    if tokens * record % 16 == 0:
        return {prefix + "cache": fw.put(pages.bytes)}
    unit = oracle.LAYOUT[pages.format][2]
    padded = np.full((n, -(-tokens * record // unit) * unit), 0xFF, np.uint8)
    padded[:, :tokens * record] = pages.bytes.reshape(n, -1)
    return {prefix + "cache": fw.put(padded), prefix + "format": pages.format,
            prefix + "page_tokens": tokens}


@functools.lru_cache(maxsize=None)
def rounds_probabilities(device, implementation=None):
    """Whether a call multiplies by probabilities rounded to bf16, as the end of a name says. Without a
    name the plan takes one of those that are here, which must agree then: on a CPU none rounds, on a
    GPU all do."""
    names = {i.name for i in megamla.implementations(device) if i.op == "attend" and i.available
             and (i.name == implementation if implementation else not i.by_name_only)}
    (rounds,) = {name.endswith("bf16") for name in names}
    return rounds


class AttendCase:
    """Attributes are NumPy arrays by the names of attend_paged; `keywords` the numbers."""

    def __init__(self, seed, t=3, heads=16, formats=("v41_fp8", "v41_fp4"), pages=3, page_tokens=16,
                 compressed_page_tokens=None, widths=(9, 13), rows=None, out_form="fp8_permuted", q_layout="standard",
                 q_norm=False, sink=True, lens=True, max_logits=True):
        rng = np.random.default_rng(seed)
        self.t, self.heads, self.out_form = t, heads, out_form
        self.q_standard = bf16_noise(rng, (t, heads, 512))
        self.q = oracle.q_fused(self.q_standard) if q_layout == "fused" else self.q_standard
        self.positions = rng.integers(0, 20, t).astype(np.int32)
        self.cos_sin = angles(rng, 20)
        self.sink = rng.standard_normal(heads).astype(np.float32) if sink else None
        if sink and heads > 8:
            self.sink[:2] = -np.inf, np.inf
        self.keywords = dict(scale=0.05, out_form=out_form, q_layout=q_layout,
                             max_logits=max_logits)
        if q_norm:
            self.keywords["q_norm_eps"] = 1e-6
        self.rows_of_token = [np.zeros((0, 512)) for _ in range(t)]
        if rows is not None:
            self._make_rows(rng, rows, widths[0], lens)
            return
        self.kv = None
        self.window = self._make_cache(rng, formats[0], pages, page_tokens)
        self.window_list, self.window_lens = self._make_list(rng, self.window, widths[0], lens)
        self.compressed = self.compressed_list = self.compressed_lens = None
        if formats[1] is not None:
            self.compressed = self._make_cache(rng, formats[1], pages,
                                               compressed_page_tokens or page_tokens + 3)
            self.compressed_list, self.compressed_lens = self._make_list(
                rng, self.compressed, widths[1], lens)

    def _make_cache(self, rng, format, pages, page_tokens):
        cache = oracle.Pages(format, pages, page_tokens)
        self.named = rng.random(cache.capacity) < 0.7
        slots = np.flatnonzero(self.named)
        cache.store(slots, rng.standard_normal((len(slots), 512)).astype(np.float32))
        return cache

    def _only_named(self, table, lens, named):
        """Entries of records that are NaN become holes, but behind the lengths they may stand."""
        inside = (table >= 0) & (table < len(named))
        unnamed = inside & ~named[np.where(inside, table, 0)] if len(named) else inside
        before = np.arange(table.shape[1]) < lens[:, None]
        table[unnamed & before] = -1

    def _make_list(self, rng, cache, width, lens):
        table, lengths = entries(rng, self.t, width, cache.capacity)
        if not lens:
            lengths[:] = width
        self._only_named(table, lengths, self.named)
        for i in range(self.t):
            keys = oracle.keys_of(table[i], lengths[i], cache.capacity)
            self.rows_of_token[i] = np.concatenate([self.rows_of_token[i], cache.load(keys)])
        return table, lengths if lens else None

    def _make_rows(self, rng, rows, width, lens):
        self.kv = bf16_noise(rng, (rows, 512))
        named = rng.random(rows) < 0.8
        self.kv[~named] = 0x7FFF
        self.list, lengths = entries(rng, self.t, width, rows)
        if not lens:
            lengths[:] = width
        self._only_named(self.list, lengths, named)
        self.lens = lengths if lens else None
        for i in range(self.t):
            keys = oracle.keys_of(self.list[i], lengths[i], rows)
            self.rows_of_token[i] = oracle.bf16_value(self.kv[keys])

    def arguments(self, fw):
        """Tensors of a framework, by name."""
        def put(array, kind=None):
            return None if array is None else fw.put(array, kind)

        given = {"q": put(self.q, "bf16"), "positions": put(self.positions),
                 "cos_sin": put(self.cos_sin), "sink": put(self.sink)}
        if self.kv is not None:
            return {**given, "kv": put(self.kv, "bf16"), "list": put(self.list),
                    "lens": put(self.lens)}
        return {**given, **cache_arguments(fw, self.window, "window_"),
                "window_list": put(self.window_list), "window_lens": put(self.window_lens),
                **cache_arguments(fw, self.compressed, "compressed_"),
                "compressed_list": put(self.compressed_list),
                "compressed_lens": put(self.compressed_lens)}

    @property
    def function(self):
        return megamla.attend_paged if self.kv is None else megamla.attend_rows

    def expected(self, **more):
        return oracle.attend(self.q_standard, self.positions, self.cos_sin, self.rows_of_token,
                             self.keywords["scale"], self.sink, self.keywords.get("q_norm_eps"), **more)

    def probability_error(self, fw, implementation=None):
        """What `out` may be off by for the rounding of probabilities; 0 where they are not rounded."""
        if not rounds_probabilities(fw.device, implementation):
            return 0.0
        return oracle.probability_error(self.rows_of_token)

    def check(self, fw, result, implementation=None):
        out, lse, most = self.expected()
        scale = None if result.out_scale is None else fw.get(result.out_scale)
        oracle.assert_output(self.out_form, fw.get(result.out), scale, out,
                             self.probability_error(fw, implementation))
        if result.lse is not None:
            oracle.assert_lse(fw.get(result.lse), lse)
        if result.max_logits is not None:
            oracle.assert_lse(fw.get(result.max_logits), most, "max_logits")

    def run(self, fw, **more):
        result = self.function(**{**self.arguments(fw), **self.keywords, **more})
        self.check(fw, result, more.get("implementation"))
        return result
