"""kv_insert, kv_gather, rope_table: writing records, reading them back, and the table both turn by."""

from typing import Optional

from ._formats import FORMATS
from ._frameworks import Tensor, choose, framework_of, run, shape_of
from ._native import native

_SCALE_FLOORS = {"amax": 0, "scale": 1}
_INSERT_WORKSPACE, _INSERT_STREAM = 14, 15
_GATHER_WORKSPACE, _GATHER_STREAM = 13, 14


def kv_insert(
    rows: Tensor,
    positions: Tensor,
    slots: Tensor,
    cos_sin: Tensor,
    cache: Tensor,
    *,
    ratio: int = 1,
    norm_weight: Optional[Tensor] = None,
    norm_eps: float = 1e-20,
    scale_floor: str = "amax",
    n_faults: Optional[Tensor] = None,
    overlap: bool = False,
    implementation: Optional[str] = None,
    workspace: Optional[Tensor] = None,
    stream: Optional[int] = None,
    format: Optional[str] = None,
    page_tokens: int = 0,
) -> None:
    """Norm if asked, rotate, quantise and store rows, each at its slot, in place in the cache.

    Args:
        rows: bf16 [T, D], 16-byte aligned; D is 512, or 128 for index keys.
        positions: int64 [T], each token's own.
        slots: int64 [T'], T' at most T; negative: nothing is written; rows past T' are skipped.
        cos_sin: float32 [P, 64], 32 cosines and 32 sines a position.
        cache: bytes, as in attend_paged; 132 and 68-byte records of index keys too.
        ratio: rows are rotated at position // ratio * ratio; 1 or 2.
        norm_weight: float32 [D]: RMSNorm with it and norm_eps first; None: no norm.
        scale_floor: "amax" or "scale", which of two public writers to agree with (docs/numerics.md).
        n_faults: int32 [1]; rows that were refused are added (a GPU cannot raise).
        overlap: the call may begin while the launch before it on the stream still runs, as may all such
            calls in a row; the next launch without it waits for all. From capability 9.0 on; elsewhere
            it means nothing. The caller knows that none of these reads or writes what another writes
            (all may add to one n_faults), that the launch before the first is an ordinary one or
            megamla's, and that no wait for an event lies between. A GPU's workspace, which more than
            2048 rows take, must be given then.
        implementation, workspace, stream: as in attend_paged.
        format, page_tokens: when cache is [pages, bytes of a page].

    Raises:
        ValueError: an argument, named; on a CPU also a slot past the cache or a position outside
            cos_sin, after all other rows are written.
        RuntimeError: the device.
    """
    fw = framework_of(rows)
    args = (rows, positions, slots, cos_sin, cache,
            0 if format is None else choose(FORMATS, "format", format), page_tokens, norm_weight,
            norm_eps, ratio, choose(_SCALE_FLOORS, "scale_floor", scale_floor), n_faults,
            overlap, implementation, workspace, stream)
    if fw.fast_insert is None or fw.fast_insert(*args) is not None:
        run(fw, rows, native.kv_insert, args, _INSERT_WORKSPACE, _INSERT_STREAM)


def kv_gather(
    cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    gather_lens: Optional[Tensor] = None,
    *,
    ratio: int = 1,
    window: int = 0,
    query_start: Optional[Tensor] = None,
    rows: Optional[int] = None,
    offset: int = 0,
    out: Optional[Tensor] = None,
    n_faults: Optional[Tensor] = None,
    implementation: Optional[str] = None,
    workspace: Optional[Tensor] = None,
    stream: Optional[int] = None,
    format: Optional[str] = None,
    page_tokens: int = 0,
) -> Tensor:
    """Dequantise the last records of every request into bf16 rows, for attend_rows.

    Record p of request r is at block_table[r, p // page tokens]; row i of the request becomes record
    seq_lens[r] // ratio - gather_lens[r] + i, at out[r, offset + i]. Other rows are left as they were:
    in a result that is made here they hold anything.

    Args:
        cache: bytes, as in attend_paged.
        block_table: int32 [R, B], page numbers; a page outside the cache gives rows of 0.
        seq_lens: int32 [R], tokens of each request, this step's included; with ratio 1 its records.
        gather_lens: int32 [R], how many records; None: all, or those of the window.
        ratio: tokens that a record stands for, 1 or 2.
        window: without gather_lens, only the records of the query and of the window - 1 tokens before
            it, which is what a window shows it; ratio 1 only. 0: all.
        query_start: int32 [R + 1], first query token of each request; needed with a window.
        rows: M, rows of the result for each request, when out is None.
        offset: first row written of each request.
        out: bf16 [R, M, 512] to write, contiguous, 16-byte aligned.
        n_faults: int32 [1]; requests whose rows do not fit are added.
        implementation, workspace, stream, format, page_tokens: as in kv_insert.

    Returns:
        out. Seen as [R * M, 512] it is attend_rows' kv.

    Raises:
        ValueError: an argument, named; on a CPU also when rows do not fit.
        RuntimeError: the device.
    """
    fw = framework_of(cache)
    if out is None:
        if rows is None:
            raise ValueError("rows: is None, must be given when out is not")
        out = fw.empty(cache, (shape_of(seq_lens, "seq_lens", 1)[0], rows, 512), "bf16")
    elif rows is not None and rows != shape_of(out, "out", 3)[1]:
        raise ValueError("rows: is %d, but out has %d" % (rows, out.shape[1]))
    run(fw, cache, native.kv_gather,
        (cache, 0 if format is None else choose(FORMATS, "format", format), page_tokens, block_table,
         seq_lens, gather_lens, query_start, ratio, window, offset, out, n_faults, implementation,
         workspace, stream),
        _GATHER_WORKSPACE, _GATHER_STREAM)
    return out


def rope_table(
    positions: Optional[int] = None,
    *,
    ratio: Optional[int] = None,
    theta: float = 10000.0,
    yarn_factor: float = 0.0,
    yarn_beta_fast: float = 32.0,
    yarn_beta_slow: float = 1.0,
    yarn_original_tokens: float = 65536.0,
    first: int = 0,
    out: Optional[Tensor] = None,
) -> Tensor:
    """The cosine and sine table, computed on the host.

    Args:
        positions: rows, of positions first, first + 1, ...; None: as many as out has.
        ratio: the model's settings: 0 for layers without a compressed cache and draft layers, 1 or 2
            for the others. None: theta and yarn_* below.
        theta: base of the frequencies, above 1.
        yarn_factor: 0: plain frequencies; at least 1: frequency-only YaRN with the other three.
        out: float32 [P, 64] in host memory to write; None: a NumPy array is made.

    Returns:
        float32 [P, 64]: 32 cosines, then 32 sines. torch.from_numpy and jax.numpy.asarray take it.

    Raises:
        ValueError: an argument, named.
    """
    if out is None:
        import numpy

        if not isinstance(positions, int) or positions < 0:
            raise ValueError("positions: is %r, must be a number of rows" % (positions,))
        out = numpy.empty((positions, 64), numpy.float32)
    elif positions is not None and positions != out.shape[0]:
        raise ValueError("positions: is %r, but out has %d rows" % (positions, out.shape[0]))
    native.rope_table(theta, yarn_factor, yarn_beta_fast, yarn_beta_slow, yarn_original_tokens, ratio,
                      first, out)
    return out
