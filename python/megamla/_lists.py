"""The index builders: which slots a token attends to, and where its records go.

Shapes are those of R requests and T tokens. Every builder writes every entry of every row it owns:
valid entries first, then -1; a token whose `valid` is 0 gets length 0 and a row of -1. What is wrong
raises ValueError with the argument's name, a failing device RuntimeError.
"""

from typing import NamedTuple, Optional, Sequence, Tuple

from ._frameworks import Tensor, framework_of, run, shape_of
from ._native import native

# The order of the library's arguments, python/src/binding_list.c.
_ORDER = ("kind", "n_tokens", "query_start", "seq_lens", "gather_lens", "block_table", "ring_blocks",
          "request", "topk", "positions", "slots", "valid", "left", "right", "span_start", "spans",
          "list", "lens", "out", "out_left", "out_right", "n_faults", "window", "page_tokens",
          "n_pages", "ratio", "topk_limit", "request_rows", "window_offset", "image_tokens",
          "overlap", "stream")
_NUMBERS = frozenset(_ORDER[_ORDER.index("window"):-1])
_WINDOW, _DRAFT, _COMPRESSED, _COMBINED, _COMPRESSED_SLOTS, _RING_SLOTS, _IMAGE_SPANS = range(7)


class TokenList(NamedTuple):
    """A list of every token, as attend_paged and attend_rows take it."""

    list: Tensor
    """int32 [T, width], slots or rows, then -1."""
    lens: Tensor
    """int32 [T], how many."""


def _build(like: Tensor, **given) -> None:
    args = tuple(given.get(name, 0 if name in _NUMBERS else None) for name in _ORDER)
    run(framework_of(like), like, native.list_build, args, None, len(_ORDER) - 1)


def _count(n_tokens: Optional[int], tokens: Sequence[Tuple[str, Optional[Tensor]]]) -> int:
    """T, told or known from a tensor of one row a token."""
    if n_tokens is not None:
        return n_tokens
    for name, tensor in tokens:
        if tensor is not None:
            if not getattr(tensor, "shape", ()):
                raise ValueError("%s: is not a tensor (an array with __dlpack__)" % name)
            return tensor.shape[0]
    raise ValueError("n_tokens: is None, must be given: no tensor tells it (it is query_start's last)")


def _check_overlap(overlap: bool, **results) -> None:
    """Memory that a framework gives for results may be what a call that still runs reads."""
    for name, result in results.items():
        if overlap and result is None:
            raise ValueError("%s: is None, must be given with overlap" % name)


def _result(like: Tensor, t: int, width: int, list, lens, overlap: bool) -> TokenList:
    _check_overlap(overlap, list=list, lens=lens)
    fw = framework_of(like)
    if list is None:
        list = fw.empty(like, (t, width), "i32")
    if lens is None:
        lens = fw.empty(like, (t,), "i32")
    return TokenList(list, lens)


def window_list(
    query_start: Tensor,
    seq_lens: Tensor,
    block_table: Tensor,
    *,
    page_tokens: int,
    n_pages: int,
    n_tokens: Optional[int] = None,
    window: int = 128,
    width: Optional[int] = None,
    valid: Optional[Tensor] = None,
    list: Optional[Tensor] = None,
    lens: Optional[Tensor] = None,
    n_faults: Optional[Tensor] = None,
    overlap: bool = False,
    stream: Optional[int] = None,
) -> TokenList:
    """Slots of the last `window` positions of each token, oldest first, itself last.

    Args:
        query_start: int32 [R + 1], first token of each request; from 0 to at most T.
        seq_lens: int32 [R], tokens of each sequence, this step's included.
        block_table: int32 [R, B], page numbers of the window cache.
        page_tokens, n_pages: of that cache.
        n_tokens: T; None: the length of valid, list or lens.
        window: positions a token sees, itself included.
        width: columns of the result, at least window; None: window.
        valid: bool or uint8 [T]; 0: padding.
        list, lens: int32 [T, width] and [T] to write.
        n_faults: int32 [1]; illegal entries of query_start are added (a GPU cannot raise).
        overlap: as in kv_insert; list and lens must be given then.
        stream: as in attend_paged.
    """
    t = _count(n_tokens, (("valid", valid), ("list", list), ("lens", lens)))
    result = _result(query_start, t, window if width is None else width, list, lens, overlap)
    _build(query_start, kind=_WINDOW, n_tokens=t, query_start=query_start, seq_lens=seq_lens,
           block_table=block_table, valid=valid, list=result.list, lens=result.lens,
           n_faults=n_faults, window=window, page_tokens=page_tokens, n_pages=n_pages,
           overlap=overlap, stream=stream)
    return result


def draft_list(
    query_start: Tensor,
    seq_lens: Tensor,
    block_table: Tensor,
    *,
    page_tokens: int,
    n_pages: int,
    n_tokens: Optional[int] = None,
    window: int = 128,
    width: int = 192,
    valid: Optional[Tensor] = None,
    list: Optional[Tensor] = None,
    lens: Optional[Tensor] = None,
    n_faults: Optional[Tensor] = None,
    overlap: bool = False,
    stream: Optional[int] = None,
) -> TokenList:
    """Slots of a draft block: `window` positions before it and all of it, the same for its tokens.

    Args: as window_list; window counts positions before the block.
    """
    t = _count(n_tokens, (("valid", valid), ("list", list), ("lens", lens)))
    result = _result(query_start, t, width, list, lens, overlap)
    _build(query_start, kind=_DRAFT, n_tokens=t, query_start=query_start, seq_lens=seq_lens,
           block_table=block_table, valid=valid, list=result.list, lens=result.lens,
           n_faults=n_faults, window=window, page_tokens=page_tokens, n_pages=n_pages,
           overlap=overlap, stream=stream)
    return result


def compressed_list(
    topk: Tensor,
    request: Tensor,
    block_table: Tensor,
    *,
    page_tokens: int,
    n_pages: int,
    width: Optional[int] = None,
    valid: Optional[Tensor] = None,
    list: Optional[Tensor] = None,
    lens: Optional[Tensor] = None,
    overlap: bool = False,
    stream: Optional[int] = None,
) -> TokenList:
    """Slots of the compressed positions that an indexer chose.

    Args:
        topk: int32 [T, k], positions; negative: none.
        request: int32 [T], the request of each token.
        block_table: int32 [R, B], page numbers of the compressed cache.
        page_tokens, n_pages: of that cache.
        width: columns of the result, at least k; None: k.
        valid, list, lens, overlap, stream: as in window_list.
    """
    t, k = shape_of(topk, "topk", 2)
    result = _result(topk, t, k if width is None else width, list, lens, overlap)
    _build(topk, kind=_COMPRESSED, n_tokens=t, topk=topk, request=request, block_table=block_table,
           valid=valid, list=result.list, lens=result.lens, page_tokens=page_tokens, n_pages=n_pages,
           overlap=overlap, stream=stream)
    return result


def combined_list(
    topk: Optional[Tensor],
    query_start: Tensor,
    seq_lens: Tensor,
    gather_lens: Optional[Tensor] = None,
    *,
    ratio: int,
    topk_limit: int,
    request_rows: int,
    window_offset: int,
    window: int = 128,
    n_tokens: Optional[int] = None,
    width: Optional[int] = None,
    image_tokens: int = 0,
    left: Optional[Tensor] = None,
    right: Optional[Tensor] = None,
    valid: Optional[Tensor] = None,
    list: Optional[Tensor] = None,
    lens: Optional[Tensor] = None,
    n_faults: Optional[Tensor] = None,
    overlap: bool = False,
    stream: Optional[int] = None,
) -> TokenList:
    """Rows of a gathered workspace, for a prefill: the compressed records first, then the window.

    Args:
        topk: int32 [T, k], compressed positions; None with ratio 0.
        query_start, seq_lens: as in window_list.
        gather_lens: int32 [R], window rows that were gathered for each request; None: those that
            kv_gather takes with this window.
        ratio: 0 (no compressed part), 1 or 2.
        topk_limit: the most compressed entries a token takes, 0 .. k.
        request_rows: M, workspace rows of a request.
        window_offset: N, where the window rows of a request begin.
        window, n_tokens, valid, list, lens, n_faults, overlap, stream: as in window_list.
        width: columns, at least topk_limit + window + image_tokens; None: that, rounded up to 128.
        image_tokens: most tokens of an image; 0: causal only.
        left, right: int32 [T], tokens of the image before and after each, of image_spans.
    """
    t = _count(n_tokens, (("topk", topk), ("valid", valid), ("list", list), ("lens", lens)))
    if width is None:
        width = -(-(topk_limit + window + image_tokens) // 128) * 128
    result = _result(query_start, t, width, list, lens, overlap)
    _build(query_start, kind=_COMBINED, n_tokens=t, topk=topk, query_start=query_start,
           seq_lens=seq_lens, gather_lens=gather_lens, valid=valid, left=left, right=right,
           list=result.list, lens=result.lens, n_faults=n_faults, window=window, ratio=ratio,
           topk_limit=topk_limit, request_rows=request_rows, window_offset=window_offset,
           image_tokens=image_tokens, overlap=overlap, stream=stream)
    return result


def compressed_slots(
    positions: Tensor,
    slots: Tensor,
    request: Tensor,
    block_table: Tensor,
    *,
    ratio: int,
    page_tokens: int,
    n_pages: int,
    out: Optional[Tensor] = None,
    overlap: bool = False,
    stream: Optional[int] = None,
) -> Tensor:
    """Where the compressed record that each token completes goes; -1 where it completes none.

    Args:
        positions: int64 [T].
        slots: int64 [T], the tokens' window slots; negative: padding.
        request: int32 [T].
        block_table: int32 [R, B], page numbers of the compressed cache.
        ratio: 1 or 2.
        page_tokens, n_pages: of that cache.
        out: int64 [T] to write.
        overlap: as in kv_insert; out must be given then.
    """
    t = shape_of(positions, "positions", 1)[0]
    _check_overlap(overlap, out=out)
    if out is None:
        out = framework_of(positions).empty(positions, (t,), "i64")
    _build(positions, kind=_COMPRESSED_SLOTS, n_tokens=t, positions=positions, slots=slots,
           request=request, block_table=block_table, out=out, ratio=ratio, page_tokens=page_tokens,
           n_pages=n_pages, overlap=overlap, stream=stream)
    return out


def ring_slots(
    positions: Tensor,
    slots: Tensor,
    request: Tensor,
    ring_blocks: Tensor,
    *,
    ring_tokens: int,
    n_rings: int,
    out: Optional[Tensor] = None,
    overlap: bool = False,
    stream: Optional[int] = None,
) -> Tensor:
    """Where each token goes in the compressor's ring of its request; -1 without one.

    Args:
        positions, slots, request, out, overlap: as in compressed_slots.
        ring_blocks: int32 [R], the ring of each request; 0: none.
        ring_tokens: rows of a ring, a power of two.
        n_rings: rings there are, ring 0, which is nobody's, included.
    """
    t = shape_of(positions, "positions", 1)[0]
    _check_overlap(overlap, out=out)
    if out is None:
        out = framework_of(positions).empty(positions, (t,), "i64")
    _build(positions, kind=_RING_SLOTS, n_tokens=t, positions=positions, slots=slots, request=request,
           ring_blocks=ring_blocks, out=out, page_tokens=ring_tokens, n_pages=n_rings,
           overlap=overlap, stream=stream)
    return out


class ImageReach(NamedTuple):
    """How far each token sees inside its image."""

    left: Tensor
    """int32 [T]."""
    right: Tensor
    """int32 [T]."""


def image_spans(
    query_start: Tensor,
    seq_lens: Tensor,
    span_start: Tensor,
    spans: Tensor,
    *,
    image_tokens: int,
    n_tokens: int,
    n_faults: Optional[Tensor] = None,
    stream: Optional[int] = None,
) -> ImageReach:
    """Tokens of the same image before and after each token, for combined_list.

    Args:
        query_start, seq_lens: as in window_list.
        span_start: int32 [R + 1], first span of each request, from 0.
        spans: int32 [n, 2], first and last position of each image, inclusive.
        image_tokens: most tokens of an image.
        n_tokens: T.
    """
    fw = framework_of(query_start)
    reach = ImageReach(fw.empty(query_start, (n_tokens,), "i32"),
                       fw.empty(query_start, (n_tokens,), "i32"))
    _build(query_start, kind=_IMAGE_SPANS, n_tokens=n_tokens, query_start=query_start,
           seq_lens=seq_lens, span_start=span_start, spans=spans, out_left=reach.left,
           out_right=reach.right, n_faults=n_faults, image_tokens=image_tokens, stream=stream)
    return reach
