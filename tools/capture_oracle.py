"""capture_oracle.py - the formats, records, lists and attention of megamla once more, in NumPy.

Written from docs/format.md and docs/numerics.md, not from the C code: number formats by searching
tables of all their values, everything row by row and in float64 where the definition leaves the
order of a sum open. It is slow and short, and it is what the files of make_capture.py and their
expected results are made with.
"""

import numpy as np

D = 512            # one latent row
ROPE = 64          # its last dims, rotated in adjacent pairs
NOPE = D - ROPE

# ---- number formats ------------------------------------------------------------------------------


def bf16_bits(x):
    """float32 -> bf16 bits, to nearest even. Finite values only."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_value(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bf16_round(x):
    return bf16_value(bf16_bits(x))


def e4m3_table():
    """Values of codes 0 .. 126."""
    codes = np.arange(127)
    e, m = codes >> 3, codes & 7
    return np.where(e == 0, m * 2.0**-9, (8 + m) * 2.0 ** (e - 10.0))


E4M3 = e4m3_table()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def nearest_code(table, x):
    """Place of the table's nearest value to |x|; ties go to the even place; saturates."""
    a = np.abs(x.astype(np.float64))
    middle = (table[1:] + table[:-1]) / 2
    low = np.searchsorted(middle, a, side="left")    # a tie stays below
    high = np.searchsorted(middle, a, side="right")  # a tie goes above
    return np.where(low % 2 == 0, low, high)


def e4m3_code(x):
    return (nearest_code(E4M3, x) | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)


def e4m3_value(codes):
    return np.where(codes & 0x80, -1.0, 1.0) * E4M3[codes & 0x7F]


def e2m1_code(x):
    return (nearest_code(E2M1, x) | np.where(np.signbit(x), 8, 0)).astype(np.uint8)


def e2m1_value(codes):
    return np.where(codes & 8, -1.0, 1.0) * E2M1[codes & 7]


def power_up(s):
    """Smallest e with 2^e >= s, for float32 s > 0."""
    m, e = np.frexp(s.astype(np.float32))
    return np.where(m == 0.5, e - 1, e)


# ---- quantisers: rows of float32 -> (data bytes, scale bytes) ------------------------------------

F32_1_448 = np.float32(1) / np.float32(448)


def quantise_e4m3(x, group, floor="amax"):
    """Groups of e4m3 codes under a ue8m0 scale each. x [..., n] -> codes [..., n], [..., n/group]"""
    g = x.astype(np.float32).reshape(*x.shape[:-1], -1, group)
    amax = np.abs(g).max(axis=-1)
    least = np.float32(1e-4)
    s = np.maximum(amax, least) * F32_1_448 if floor == "amax" else \
        np.maximum(amax * F32_1_448, least)
    e = power_up(s)
    scaled = np.clip(g.astype(np.float64) * 2.0 ** -e[..., None], -448, 448)
    return e4m3_code(scaled).reshape(x.shape), (e + 127).astype(np.uint8)


def quantise_e2m1(x):
    """Groups of 16 e2m1 codes under an e4m3 scale each, two codes a byte, the even one low."""
    g = x.astype(np.float32).reshape(*x.shape[:-1], -1, 16)
    amax = np.maximum(np.abs(g).max(axis=-1), np.float32(6 * 2.0**-9))
    raw = np.minimum(amax / np.float32(6), np.float32(448))
    scale = e4m3_code(raw)
    codes = e2m1_code(g / e4m3_value(scale).astype(np.float32)[..., None]).reshape(x.shape)
    return codes[..., 0::2] | codes[..., 1::2] << 4, scale


def record_encode(fmt, x, floor="amax"):
    """A row that is already rotated and rounded to bf16 -> (data bytes, scale bytes)."""
    if fmt == "v4":
        codes, scales = quantise_e4m3(x[:NOPE], 64, floor)
        rope = bf16_bits(x[NOPE:]).view(np.uint8)
        return np.concatenate([codes, rope]), np.append(scales, np.uint8(0))
    return quantise_e4m3(x, 32, floor) if fmt == "v41_fp8" else quantise_e2m1(x)


def record_decode(fmt, data, scale):
    """-> float64 row, exact."""
    if fmt == "v4":
        nope = e4m3_value(data[:NOPE]) * np.repeat(2.0 ** (scale[:7].astype(int) - 127), 64)
        return np.concatenate([nope, bf16_value(data[NOPE:].view(np.uint16))])
    if fmt == "v41_fp8":
        return e4m3_value(data) * np.repeat(2.0 ** (scale.astype(int) - 127), 32)
    codes = np.empty(D, np.uint8)
    codes[0::2], codes[1::2] = data & 15, data >> 4
    return e2m1_value(codes) * np.repeat(e4m3_value(scale), 16)


# ---- pages ---------------------------------------------------------------------------------------

DATA = {"v4": 576, "v41_fp8": 512, "v41_fp4": 256}  # bytes of a record's data, and the page's unit
SCALE = {"v4": 8, "v41_fp8": 16, "v41_fp4": 32}
ALIGN = {"v4": 576, "v41_fp8": 512, "v41_fp4": 512}


class Cache:
    """Pages of data rows, then scale rows. Starts as 0xFF everywhere, which decodes to NaN: what a
    list does not name must never matter."""

    def __init__(self, fmt, page_tokens, n_pages, fill=0xFF):
        self.fmt, self.page_tokens = fmt, page_tokens
        size = page_tokens * (DATA[fmt] + SCALE[fmt])
        self.bytes = np.full((n_pages, -(-size // ALIGN[fmt]) * ALIGN[fmt]), fill, np.uint8)

    def record(self, slot):
        """Views of a record's data and scale bytes."""
        page, i = self.bytes[slot // self.page_tokens], slot % self.page_tokens
        d, s = DATA[self.fmt], SCALE[self.fmt]
        at = self.page_tokens * d + i * s
        return page[i * d:(i + 1) * d], page[at:at + s]

    def store(self, slot, x, floor="amax"):
        data, scale = self.record(slot)
        data[:], scale[:] = record_encode(self.fmt, x, floor)

    def load(self, slot):
        return record_decode(self.fmt, *self.record(slot))


# ---- rotation ------------------------------------------------------------------------------------


def rope_frequencies(ratio):
    i = np.arange(ROPE // 2)
    if ratio == 0:
        return (10000.0 ** (-2 * i / ROPE)).astype(np.float32)
    base = 160000.0 ** (-2 * i / ROPE)

    def turns(r):  # the pair that turns r times over the original 65536 positions
        return ROPE * np.log(65536 / (2 * np.pi * r)) / (2 * np.log(160000.0))

    low, high = max(np.floor(turns(32)), 0), min(np.ceil(turns(1)), ROPE - 1)
    ramp = np.clip((i - low) / max(high - low, 1e-3), 0, 1)
    return (base / 16 * ramp + base * (1 - ramp)).astype(np.float32)


def rope_table(positions, ratio):
    """[n, 64]: 32 cosines, then 32 sines; the angle is a float32 product."""
    angle = np.asarray(positions, np.float32)[:, None] * rope_frequencies(ratio)
    angle = angle.astype(np.float64)
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


def fma(a, b, c):
    """float32 fused multiply-add; the product is exact in float64."""
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(np.float32)


def rotate(x, row):
    """The last 64 of x [..., 512] float32, in float32; not rounded to bf16."""
    y = x.astype(np.float32).copy()
    x0, x1 = y[..., NOPE::2].copy(), y[..., NOPE + 1::2].copy()
    c, s = row[:ROPE // 2], row[ROPE // 2:]
    y[..., NOPE::2] = fma(x0, c, -(x1 * s))
    y[..., NOPE + 1::2] = fma(x0, s, x1 * c)
    return y


def rotate_back(x, row):
    return rotate(x, np.concatenate([row[:ROPE // 2], -row[ROPE // 2:]]))


def rms_norm(x, weight, eps):
    """bf16(x rsqrt(mean(x^2) + eps) w)"""
    x = x.astype(np.float64)
    r = 1.0 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    return bf16_round((x * r * weight).astype(np.float32))


# ---- attention -----------------------------------------------------------------------------------


def q_to_fused(q):
    """[T, H, 512] -> the same shape, chunk x/16 of all heads together."""
    t, h, _ = q.shape
    return q.reshape(t, h, D // 16, 16).transpose(0, 2, 1, 3).reshape(t, h, D).copy()


def attend(q, rows, cos_sin_row, scale, sink):
    """One token in float64: q [H, 512] float32, rows [n, 512] -> O [H, 512] rotated back, lse [H],
    max_logits [H]."""
    h = q.shape[0]
    if len(rows) == 0:
        return np.zeros((h, D)), np.full(h, np.inf), np.full(h, -np.inf)
    q = bf16_round(rotate(q, cos_sin_row)).astype(np.float64)
    s = scale * (q @ rows.T)
    m = s.max(axis=1)
    p = np.exp(s - m[:, None])
    z = p.sum(axis=1)
    total = z if sink is None else z + np.exp(sink.astype(np.float64) - m)
    o = (p @ rows) / total[:, None]
    return rotate_back(o.astype(np.float32), cos_sin_row), m + np.log(z), m


def out_permuted(o):
    """O [T, H, 512] -> codes [T, H/8, 4096] and scale bytes [T, H/8, 128], both in chunk order."""
    t, h, _ = o.shape
    codes, scales = quantise_e4m3(o, 32)
    codes = codes.reshape(t, h // 8, 8, 16, 32).transpose(0, 1, 3, 2, 4)
    scales = scales.reshape(t, h // 8, 8, 16).transpose(0, 1, 3, 2)
    return codes.reshape(t, h // 8, 4096), scales.reshape(t, h // 8, 128)


# ---- lists ---------------------------------------------------------------------------------------


def slot_of(table, position, page_tokens):
    """Slot of a position of a request with that block table; -1 past it."""
    place = position // page_tokens
    if place >= len(table) or table[place] < 0:
        return -1
    return int(table[place]) * page_tokens + position % page_tokens


def window_row(table, position, window, page_tokens, width):
    start = max(position - (window - 1), 0)
    slots = [slot_of(table, p, page_tokens) for p in range(start, position + 1)]
    return slots + [-1] * (width - len(slots)), len(slots)


def compressed_row(table, topk, page_tokens):
    slots = [slot_of(table, j, page_tokens) for j in topk if j >= 0]
    slots = [s for s in slots if s >= 0]
    return slots + [-1] * (len(topk) - len(slots)), len(slots)


def combined_row(topk, position, seq_len, gather_len, base, n, window, ratio, most, width,
                 left=0, right=0):
    """Compressed rows first, then the window's, of the workspace that begins at row `base`."""
    visible = min((position + 1) // ratio, most) if ratio > 0 else 0
    row = [base + j for j in topk[:visible] if 0 <= j < n]
    start = max(position - (window - 1) - max(left - (window - 1), 0), 0)
    end = min(position + right, seq_len - 1)
    first = seq_len - gather_len
    row += [base + n + p - first for p in range(max(start, first), end + 1)]
    return row + [-1] * (width - len(row)), len(row)


def compressed_slot(table, position, slot, ratio, page_tokens):
    if slot < 0 or position < 0 or (position + 1) % ratio != 0:
        return -1
    return slot_of(table, position // ratio, page_tokens)
