"""The functions of the public package `flash_mla` that DeepSeek V4 and V4.1 engines call.

The same names, arguments and results, on the CPU and on GPUs that package does not serve: an engine
changes an import. What is undefined there is defined here: an index past the cache or the rows is no
key, lengths are clamped, an empty row gives output 0, lse +inf and max_logits -inf, and entries past
a length are never read. Any multiple of 8 heads from 8 to 128, any list width, no tokens at all.

The fused calls are in the submodule `fused_norm_rope_attn_rope_cast`.
"""

import dataclasses
from typing import Any, Optional, Tuple

from .._attend import attend_paged, attend_rows
from .._frameworks import Tensor, framework_of, shape_of
from . import fused_norm_rope_attn_rope_cast
from ._names import must_be, renamed, without_head

__all__ = ["FlashMLASchedMeta", "flash_mla_sparse_fwd", "flash_mla_with_kvcache",
           "fused_norm_rope_attn_rope_cast", "get_mla_metadata"]


@dataclasses.dataclass
class FlashMLASchedMeta:
    """What get_mla_metadata gives. The library divides the work of a call itself, so nothing is kept
    here, and one object may serve calls of any shapes."""

    tile_scheduler_metadata: Optional[Tensor] = None
    num_splits: Optional[Tensor] = None


def get_mla_metadata(*args: Any, **kwargs: Any) -> Tuple[FlashMLASchedMeta, None]:
    """The object that flash_mla_with_kvcache takes; arguments of any version are accepted."""
    return FlashMLASchedMeta(), None


def _per_token(lengths: Optional[Tensor], b: int, s_q: int, name: str) -> Optional[Tensor]:
    """Lengths of requests [b], or of tokens [b, s_q], as [b * s_q]."""
    if lengths is None:
        return None
    shape = tuple(getattr(lengths, "shape", ()))
    if shape == (b, s_q):
        return lengths.reshape(b * s_q)
    if shape != (b,):
        raise ValueError("%s: has shape %s, must have (%d,) or (%d, %d)"
                         % (name, list(shape), b, b, s_q))
    return lengths if s_q == 1 else framework_of(lengths).repeat(lengths, s_q, 0)


def _indices(indices: Tensor, b: int, s_q: int, name: str) -> Tensor:
    shape = shape_of(indices, name, 3)
    if shape[:2] != (b, s_q):
        raise ValueError("%s: has shape %s, must begin with %d, %d as q does"
                         % (name, list(shape), b, s_q))
    return indices.reshape(b * s_q, shape[2])


@renamed({"window_cache": "k_cache", "window_list": "indices", "window_lens": "topk_length",
          "compressed_cache": "extra_k_cache", "compressed_list": "extra_indices_in_kvcache",
          "compressed_lens": "extra_topk_length", "sink": "attn_sink", "scale": "softmax_scale"})
def flash_mla_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    block_table: Optional[Tensor],
    cache_seqlens: Optional[Tensor],
    head_dim_v: int,
    tile_scheduler_metadata: Any,
    num_splits: None = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: Optional[Tensor] = None,
    attn_sink: Optional[Tensor] = None,
    extra_k_cache: Optional[Tensor] = None,
    extra_indices_in_kvcache: Optional[Tensor] = None,
    topk_length: Optional[Tensor] = None,
    extra_topk_length: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """Sparse attention over paged caches of 512-wide records, without rotation, norm and cast.

    Args:
        q: bf16 [b, s_q, h_q, 512], rotated.
        k_cache: bytes [blocks, page, 1, 584, 528 or 288], the format known by the last dimension.
        block_table, cache_seqlens: not read, because indices name slots; may be None.
        head_dim_v: 512.
        tile_scheduler_metadata: of get_mla_metadata; not read.
        num_splits: None.
        softmax_scale: None: 512 ** -0.5.
        causal: False. is_fp8_kvcache: True.
        indices: int32 [b, s_q, topk], slots: block * page + place in it.
        attn_sink: float32 [h_q].
        extra_k_cache, extra_indices_in_kvcache: a second cache, and [b, s_q, extra topk] slots of it.
        topk_length, extra_topk_length: int32 [b], or [b, s_q].

    Returns:
        (out bf16 [b, s_q, h_q, 512], lse float32 [b, h_q, s_q]).

    Raises:
        ValueError: an argument, named. RuntimeError: the device.
    """
    b, s_q, h_q, dim = shape_of(q, "q", 4)
    must_be("head_dim_v", head_dim_v, 512)
    must_be("causal", causal, False)
    must_be("is_fp8_kvcache", is_fp8_kvcache, True)
    if num_splits is not None:
        raise ValueError("num_splits: is %r, must be None" % (num_splits,))
    if indices is None:
        raise ValueError("indices: is None, must be given: only sparse attention is here")
    fw = framework_of(q)
    table, positions = fw.no_rotation(q, b * s_q)
    extra = extra_indices_in_kvcache
    result = attend_paged(
        q.reshape(b * s_q, h_q, dim), positions, table, k_cache, _indices(indices, b, s_q, "indices"),
        _per_token(topk_length, b, s_q, "topk_length"), extra_k_cache,
        None if extra is None else _indices(extra, b, s_q, "extra_indices_in_kvcache"),
        _per_token(extra_topk_length, b, s_q, "extra_topk_length"),
        scale=dim ** -0.5 if softmax_scale is None else softmax_scale, sink=attn_sink,
        out_form="bf16")
    lse: Any = result.lse
    return result.out.reshape(b, s_q, h_q, 512), lse.reshape(b, s_q, h_q).swapaxes(1, 2)


@renamed({"list": "indices", "lens": "topk_length", "sink": "attn_sink", "scale": "sm_scale"})
def flash_mla_sparse_fwd(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    sm_scale: float,
    d_v: int = 512,
    attn_sink: Optional[Tensor] = None,
    topk_length: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor, Tensor]:
    """Sparse attention over bf16 rows, without rotation, norm and cast.

    Args:
        q: bf16 [s_q, h_q, 512], rotated.
        kv: bf16 [s_kv, 1, 512], rotated.
        indices: int32 [s_q, 1, topk], rows of kv; others are no key.
        sm_scale: above 0.
        d_v: 512.
        attn_sink: float32 [h_q].
        topk_length: int32 [s_q].

    Returns:
        (out bf16 [s_q, h_q, 512], max_logits, lse), both float32 [s_q, h_q].

    Raises:
        ValueError: an argument, named. RuntimeError: the device.
    """
    s_q = shape_of(q, "q", 3)[0]
    must_be("d_v", d_v, 512)
    table, positions = framework_of(q).no_rotation(q, s_q)
    result = attend_rows(q, positions, table, kv, without_head(indices, "indices"), topk_length,
                         scale=sm_scale, sink=attn_sink, out_form="bf16")
    return result.out, result.max_logits, result.lse
