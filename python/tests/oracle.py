"""oracle.py - what the library should give, once more, in NumPy and float64, for the tests.

Written from docs/format.md and docs/numerics.md and from nothing else: whole arrays at a time, no
attention to speed or to the order of sums. bf16 is uint16 bits, e4m3 and ue8m0 are uint8 bits.
"""

import numpy as np

DIM, ROPE, HALF = 512, 64, 32
# format: bytes of a record's data and scales, page alignment
LAYOUT = {"v4": (576, 8, 576), "v41_fp8": (512, 16, 512), "v41_fp4": (256, 32, 512)}
AMAX_FLOOR, E4M3_MAX = 1e-4, 448.0


# ---- numbers -------------------------------------------------------------------------------------


def bf16_bits(x):
    """To nearest even; NaN becomes 0x7FFF."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.int64)
    rounded = (u + 0x7FFF + ((u >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FFF, rounded).astype(np.uint16)


def bf16_value(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _minifloat(code, mantissa_bits, bias):
    exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    one = 1 << mantissa_bits
    return np.where(exponent == 0, mantissa, one + mantissa) * 2.0 ** (
        np.maximum(exponent, 1) - bias - mantissa_bits)


_E4M3 = _minifloat(np.arange(128), 3, 7)
_E4M3[127] = np.nan
E4M3_VALUES = np.concatenate([_E4M3, -_E4M3])
_E2M1 = _minifloat(np.arange(8), 1, 1)
E2M1_VALUES = np.concatenate([_E2M1, -_E2M1])


def _encode(x, values, sign_bit):
    """The code of the nearest of `values`, which rise from 0; ties to the even code; saturates."""
    a = np.minimum(np.abs(x), values[-1])
    above = np.clip(np.searchsorted(values, a), 1, len(values) - 1)
    below = above - 1
    down, up = a - values[below], values[above] - a
    nearest = np.where((down < up) | ((down == up) & (below % 2 == 0)), below, above)
    return (nearest | np.where(np.signbit(x), sign_bit, 0)).astype(np.uint8)


def e4m3_code(x):
    return np.where(np.isnan(x), 0x7F, _encode(np.nan_to_num(x), _E4M3[:127], 0x80)).astype(np.uint8)


def e2m1_code(x):
    return _encode(x, _E2M1, 8)


def ceil_log2(s):
    """The smallest e with 2 ** e >= s, of float32 s > 0."""
    mantissa, exponent = np.frexp(s)
    return exponent - (mantissa == 0.5)


def quantise_ue8m0(x, group):
    """Codes like x, and one ue8m0 byte for `group` numbers."""
    g = np.asarray(x, np.float32).reshape(*x.shape[:-1], x.shape[-1] // group, group)
    amax = np.maximum(np.abs(g).max(axis=-1), np.float32(AMAX_FLOOR))
    e = ceil_log2(amax * np.float32(1 / E4M3_MAX))
    codes = e4m3_code(g.astype(np.float64) / 2.0 ** e[..., None])
    return codes.reshape(x.shape), (e + 127).astype(np.uint8)


# ---- records -------------------------------------------------------------------------------------


def encode(format, x):
    """Rows [..., 512] -> data bytes and scale bytes of their records."""
    if format == "v4":
        codes, scales = quantise_ue8m0(x[..., :448], 64)
        tail = bf16_bits(x[..., 448:]).view(np.uint8)
        pad = np.zeros((*x.shape[:-1], 1), np.uint8)
        return np.concatenate([codes, tail], -1), np.concatenate([scales, pad], -1)
    if format == "v41_fp8":
        return quantise_ue8m0(x, 32)
    g = np.asarray(x, np.float32).reshape(*x.shape[:-1], x.shape[-1] // 16, 16)
    amax = np.maximum(np.abs(g).max(axis=-1), np.float32(6 * 2.0 ** -9))
    scales = e4m3_code(np.minimum(amax / np.float32(6), np.float32(448)).astype(np.float64))
    codes = e2m1_code(g / E4M3_VALUES[scales].astype(np.float32)[..., None]).reshape(x.shape)
    return codes[..., 0::2] | (codes[..., 1::2] << 4), scales


def decode(format, data, scales):
    """Back to rows of float64."""
    if format == "v4":
        factor = np.repeat(2.0 ** (scales[..., :7].astype(float) - 127), 64, axis=-1)
        tail = np.ascontiguousarray(data[..., 448:]).view(np.uint16)
        return np.concatenate([E4M3_VALUES[data[..., :448]] * factor, bf16_value(tail)], -1)
    if format == "v41_fp8":
        return E4M3_VALUES[data] * np.repeat(2.0 ** (scales.astype(float) - 127), 32, axis=-1)
    codes = np.stack([data & 15, data >> 4], -1).reshape(*data.shape[:-1], DIM)
    return E2M1_VALUES[codes] * np.repeat(E4M3_VALUES[scales], 16, axis=-1)


class Pages:
    """A cache [pages, page tokens, record bytes]. It begins as bytes 0xFF, which decode to NaN: what
    nobody names must not matter."""

    def __init__(self, format, n_pages, page_tokens):
        self.format, self.page_tokens = format, page_tokens
        self.data_bytes, self.scale_bytes, _ = LAYOUT[format]
        self.bytes = np.full((n_pages, page_tokens, self.data_bytes + self.scale_bytes), 0xFF,
                             np.uint8)

    @property
    def capacity(self):
        return self.bytes.shape[0] * self.page_tokens

    def _places(self, slots):
        """Data rows [n, P, bytes] and scale rows of all pages, as views, and where the slots lie."""
        flat = self.bytes.reshape(len(self.bytes), -1)
        cut = self.page_tokens * self.data_bytes
        data = flat[:, :cut].reshape(-1, self.page_tokens, self.data_bytes)
        scales = flat[:, cut:].reshape(-1, self.page_tokens, self.scale_bytes)
        slots = np.asarray(slots)
        return data, scales, (slots // self.page_tokens, slots % self.page_tokens)

    def store(self, slots, rows):
        data, scales, at = self._places(slots)
        data[at], scales[at] = encode(self.format, rows)

    def load(self, slots):
        data, scales, at = self._places(slots)
        return decode(self.format, data[at], scales[at])


# ---- rotation ------------------------------------------------------------------------------------


def rotate(x, cos_sin, direction=1):
    """The last 64 dims of [..., 512] by rows [..., 64] of a table, in float32."""
    x = np.asarray(x, np.float32)
    c, s = cos_sin[..., :HALF], cos_sin[..., HALF:] * np.float32(direction)
    even, odd = x[..., DIM - ROPE::2], x[..., DIM - ROPE + 1::2]
    y = x.copy()
    y[..., DIM - ROPE::2] = even.astype(np.float64) * c - (odd * s).astype(np.float64)
    y[..., DIM - ROPE + 1::2] = even.astype(np.float64) * s + (odd * c).astype(np.float64)
    return y


# ---- attention -----------------------------------------------------------------------------------


def q_fused(q):
    """bf16 bits [T, H, 512] from the standard order to the fused one."""
    t, heads, _ = q.shape
    return q.reshape(t, heads, 32, 16).swapaxes(1, 2).reshape(t, heads, DIM).copy()


def keys_of(row, length, capacity):
    """The entries of a list that are keys."""
    row = np.asarray(row)[:max(int(length), 0)]
    return row[(row >= 0) & (row < capacity)]


def attend(q, positions, cos_sin, rows_of_token, scale, sink=None, q_norm_eps=None,
           rounded=lambda p: p):
    """q bf16 bits [T, H, 512] in standard order; rows_of_token[t] [n, 512] -> the result before its
    cast [T, H, 512], lse and max_logits [T, H]. `rounded` is what becomes of probabilities before they
    multiply rows; their sum is taken of what they were."""
    t, heads, _ = q.shape
    out = np.zeros((t, heads, DIM))
    lse = np.full((t, heads), np.inf)
    most = np.full((t, heads), -np.inf)
    for i in range(t):
        rows = rows_of_token[i]
        if len(rows) == 0:
            continue
        value = bf16_value(q[i])
        factor = 1.0
        if q_norm_eps is not None:
            factor = 1 / np.sqrt((value ** 2).mean(axis=1, keepdims=True) + q_norm_eps)
        turned = bf16_value(bf16_bits(rotate(value, cos_sin[positions[i]])))
        logits = scale * factor * (turned @ rows.T)
        most[i] = logits.max(axis=1)
        p = np.exp(logits - most[i][:, None])
        z = p.sum(axis=1)
        with np.errstate(over="ignore"):
            total = z if sink is None else z + np.exp(sink.astype(np.float64) - most[i])
        lse[i] = most[i] + np.log(z)
        out[i] = rotate((rounded(p) @ rows) / total[:, None], cos_sin[positions[i]], -1)
    return out, lse, most


def merge(out_a, lse_a, out_b, lse_b, sink):
    """Two partial results, bf16 bits and float32, as one before its cast, and its lse."""
    parts = np.stack([lse_a, lse_b]).astype(np.float64)
    parts[np.isposinf(parts)] = -np.inf  # no key
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        lse = np.logaddexp(parts[0], parts[1])
        share = np.exp(parts - lse) / (1 + np.exp(sink - lse))
        share[:, np.isneginf(lse)] = 0
    out = bf16_value(out_a) * share[0][..., None] + bf16_value(out_b) * share[1][..., None]
    return out, np.where(np.isneginf(lse), np.inf, lse)


def value_of_output(form, out, out_scale):
    """Bits of a result, in the shapes that attend_paged gives them, as numbers [T, H, 512]."""
    if form == "bf16":
        return bf16_value(out)
    if form == "fp8_permuted":
        t, groups, _ = out.shape
        words = np.ascontiguousarray(out_scale).view(np.uint8).reshape(t, groups, 128)
        value = E4M3_VALUES[out] * np.repeat(2.0 ** (words.astype(float) - 127), 32, axis=-1)
        return value.reshape(t, groups, 16, 8, 32).swapaxes(2, 3).reshape(t, groups * 8, DIM)
    if form == "fp8":
        return E4M3_VALUES[out] * np.repeat(2.0 ** (out_scale.astype(float) - 127), 32, axis=-1)
    return E4M3_VALUES[out] * np.repeat(out_scale.astype(float), 128, axis=-1)


def probability_error(rows_of_token):
    """What implementations that round probabilities to bf16 may be off by beside the rest, for each
    token [T, 1, 1]: 2^-9 of the largest element of its keys (docs/numerics.md)."""
    largest = [np.abs(rows).max(initial=0.0) for rows in rows_of_token]
    return 2.0 ** -9 * np.array(largest).reshape(-1, 1, 1)


def assert_near(got, want, absolute, relative, what, more=0.0):
    """As docs/captures.md compares: each number within the larger of two bounds, and `more`; equal
    specials."""
    special = ~np.isfinite(want)
    assert np.array_equal(got[special], want[special]), what
    error = np.abs(got[~special] - want[~special])
    bound = (np.maximum(absolute, relative * np.abs(want)) + more)[~special]
    if error.size:
        worst = np.argmax(error - bound)
        assert error[worst] <= bound[worst], "%s: off by %g, allowed %g" % (
            what, error[worst], bound[worst])


def assert_direction(got, want, bound, what):
    """The cosine distance of everything together, which an error shows in that is small everywhere."""
    got, want = got[np.isfinite(want)], want[np.isfinite(want)]
    norms = got @ got + want @ want
    distance = 1 - 2 * (got @ want) / norms if norms > 0 else 0.0
    assert distance <= bound, "%s: cosine distance %g, allowed %g" % (what, distance, bound)


def assert_output(form, out, out_scale, want, more=0.0):
    """A bf16 result is a hundred times nearer than an fp8 one, but for the error of probabilities."""
    bf16 = form == "bf16"
    got = value_of_output(form, out, out_scale)
    assert_near(got, want, 1.1e-3, 1.01 / 128 if bf16 else 1.01 / 8, "out", more)
    assert_direction(got, want, 1e-5 if bf16 else 1e-3, "out")


def assert_lse(got, want, what="lse"):
    assert_near(got.astype(np.float64), want, 1e-5, 4.01 / 65536, what)
