"""attend_prefill, and prefill_chunks for an engine that takes its steps one by one."""

from typing import Any, Iterator, NamedTuple, Optional, Sequence, Union

from ._attend import (AT_STREAM, AT_WORKSPACE, MODEL_SCALE, OUT_FORMS, Q_LAYOUTS, AttendResult,
                      _make_results)
from ._formats import FORMATS
from ._frameworks import Tensor, choose, framework_of, run
from ._native import native

Lens = Union[Sequence[int], Tensor]  # numbers of the host

_ROUTES = {"auto": 0, "paged": 1, "workspace": 2}


def _host_lens(lens: Lens, name: str) -> Any:
    """Lengths of the host as an int32 array of NumPy."""
    import numpy

    try:
        array = numpy.asarray(lens)
    except (TypeError, ValueError, OverflowError) as error:  # a GPU's tensor is one that is not taken
        raise ValueError("%s: is no int32 array in host memory: %s" % (name, error)) from error
    if array.size > 0:  # or NumPy would round numbers, and leave out what is too much of them
        if array.dtype.kind not in "iu":
            raise ValueError("%s: is no int32 array in host memory: has %s" % (name, array.dtype))
        for most in (int(array.min()), int(array.max())):
            if not -2**31 <= most < 2**31:
                raise ValueError("%s: is no int32 array in host memory: has %d" % (name, most))
    array = array.astype(numpy.int32, order="C", copy=False)
    # JAX's must not be written, which DLPack cannot say and so does not show.
    return array if array.flags.writeable else array.copy()


def attend_prefill(
    q: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    query_start: Tensor,
    seq_lens: Tensor,
    window_cache: Tensor,
    window_table: Tensor,
    compressed_cache: Optional[Tensor] = None,
    compressed_table: Optional[Tensor] = None,
    topk: Optional[Tensor] = None,
    request: Optional[Tensor] = None,
    *,
    ratio: int = 0,
    window: int = 128,
    route: str = "auto",
    max_rows: int = 0,
    host_query_lens: Optional[Lens] = None,
    host_seq_lens: Optional[Lens] = None,
    scale: float = MODEL_SCALE,
    sink: Optional[Tensor] = None,
    q_layout: str = "standard",
    q_norm_eps: Optional[float] = None,
    out_form: str = "fp8_permuted",
    out: Optional[Tensor] = None,
    out_scale: Optional[Tensor] = None,
    lse: Union[bool, Tensor] = True,
    max_logits: Union[bool, Tensor] = False,
    n_faults: Optional[Tensor] = None,
    batch_invariant: bool = False,
    implementation: Optional[str] = None,
    workspace: Optional[Tensor] = None,
    stream: Optional[int] = None,
    window_format: Optional[str] = None,
    window_page_tokens: int = 0,
    compressed_format: Optional[str] = None,
    compressed_page_tokens: int = 0,
) -> AttendResult:
    """Attention of many tokens of few requests, lists included: from lengths, block tables and picks.

    There are two routes to the same numbers, which differ in the last bits. "paged" makes lists of
    slots and attends from the caches, as window_list, compressed_list and attend_paged do. "workspace"
    dequantises each request's records once and attends from those rows, as kv_gather, combined_list
    and attend_rows do. "auto" takes for each call the one that a model of the time, an H200's, says is
    faster; on a CPU and with batch_invariant that is always the caches.

    The caches hold the rows of this call's tokens already. Token t of request r stands at position
    seq_lens[r] - n + t - query_start[r], where n is the length of its query, and sees the last
    `window` positions and the records that topk names.

    Args:
        q, positions, cos_sin: as in attend_paged.
        query_start: int32 [R + 1], first token of each request; from 0 to at most T. Tokens after the
            last request are padding: they have no key.
        seq_lens: int32 [R], tokens of each sequence, this step's included.
        window_cache: as in attend_paged.
        window_table: int32 [R, B], page numbers of the window cache. An entry that is no page: its
            positions are no keys by "paged", and keys of 0 by "workspace"; so is it below.
        compressed_cache, compressed_table: a second cache, of records of `ratio` tokens, and its pages;
            None: a layer of ratio 0. Pairs of formats as in attend_paged.
        topk: int32 [T, k], with that cache: records of each token's request, all below
            (its position + 1) // ratio, in front; then -1.
        request: int32 [T], with that cache: the request of each token as query_start has it; -1 for
            padding.
        ratio: tokens a compressed record, 1 or 2; 0 without that cache.
        window: positions a token sees, itself included.
        route: "auto", "paged" or "workspace".
        max_rows: the most rows, of 1 KiB each, that the workspace may have: R times the longest
            request's records and window rows. A call that needs more takes the caches, or is refused
            with route "workspace"; 0: so are all. A plan belongs to the number, and every call of that
            plan has memory for so many: give the same one always.
        host_query_lens, host_seq_lens: what query_start and seq_lens say, in host memory: integers, or
            anything there that NumPy makes an array of integers of. They decide the route, and with
            "workspace" they are the room that each request has there, so none may be less than the
            device's length. May be None when every call takes the caches.
        scale, sink, q_layout, q_norm_eps, out_form, out, out_scale, lse, max_logits: as in
            attend_paged.
        n_faults: int32 [1]; what a GPU finds and cannot raise is added: positions outside cos_sin,
            illegal entries of query_start, requests whose window rows did not fit. Records beyond
            host_seq_lens are left out and not counted.
        batch_invariant, implementation, workspace, stream: as in attend_paged. A CUDA graph keeps the
            route and the rows of the host's lengths when it was recorded, so its replays want lengths
            no greater.
        window_format, window_page_tokens, compressed_format, compressed_page_tokens: as in
            attend_paged.

    Returns:
        AttendResult(out, out_scale, lse, max_logits).

    Raises:
        ValueError: an argument; the message begins with its name. On a CPU also when a position lies
            outside cos_sin, after all other tokens are complete, when query_start is illegal, or when a
            sequence is longer than host_seq_lens says.
        RuntimeError: the device is missing, unsupported, or refused the work.
    """
    fw = framework_of(q)
    form = choose(OUT_FORMS, "out_form", out_form)
    layout = choose(Q_LAYOUTS, "q_layout", q_layout)
    way = choose(_ROUTES, "route", route)
    formats = [0 if told is None else choose(FORMATS, name, told) for name, told in
               (("window_format", window_format), ("compressed_format", compressed_format))]
    host = [None if lens is None else _host_lens(lens, name) for name, lens in
            (("host_query_lens", host_query_lens), ("host_seq_lens", host_seq_lens))]
    made = out is None
    out, out_scale, lse, max_logits = _make_results(
        fw, q, form, out, out_scale, None if lse is False else lse,
        None if max_logits is False else max_logits)
    run(fw, q, native.attend_prefill,
        (q, positions, cos_sin, sink, out, out_scale, lse, max_logits, n_faults, scale, layout,
         q_norm_eps, form, batch_invariant, implementation, workspace, stream, window_cache, formats[0],
         window_page_tokens, compressed_cache, formats[1], compressed_page_tokens, query_start,
         seq_lens, window_table, compressed_table, topk, request, *host, window, ratio, max_rows, way),
        AT_WORKSPACE, AT_STREAM)
    if fw.deferred and made and form == 0:
        out_scale = fw.scales(out_scale, q.shape[0])
    return AttendResult(out, out_scale, lse, max_logits)


class PrefillChunk(NamedTuple):
    """Requests first .. last - 1 share one gathered workspace of m rows each, n of them compressed."""

    first: int
    last: int
    n: int
    m: int


def prefill_chunks(
    query_lens: Lens,
    seq_lens: Lens,
    *,
    ratio: int,
    max_model_tokens: int,
    max_batch_tokens: int,
    window: int = 128,
) -> Iterator[PrefillChunk]:
    """Cut the requests of a prefill into chunks whose workspaces stay bounded.

    Args:
        query_lens, seq_lens: tokens of this step and of the whole sequence, a request each; integers,
            or anything in host memory that NumPy makes an array of integers of.
        ratio: 0, 1 or 2.
        max_model_tokens: longest sequence served.
        max_batch_tokens: most query tokens of a step.
        window: as in window_list.

    Raises:
        ValueError: an argument, named.
    """
    import numpy

    lens, seq = _host_lens(query_lens, "query_lens"), _host_lens(seq_lens, "seq_lens")
    chunk = numpy.zeros(4, numpy.int64)
    while chunk[1] < lens.size:  # of what has no length, a number, the call says so
        native.prefill_chunk(lens, seq, int(chunk[1]), window, ratio, max_model_tokens,
                             max_batch_tokens, chunk)
        yield PrefillChunk(*(int(x) for x in chunk))
