"""The fused calls of the public package and their weight layouts, by the same names and arguments.

Both calls take q in the order that permute_q_b_proj makes the projection emit and give what
permute_wv_proj's weight consumes: out_fp8 e4m3 [s_q, groups, 4096] and out_sf int32 [s_q, groups,
32], four ue8m0 bytes a word, token stride 1. The flags that have one legal value there have it here.
"""

from typing import Any, Optional, Tuple

from .._attend import attend_paged, attend_rows
from .._frameworks import Tensor, framework_of, shape_of
from .._weights import permute_wo_a, permute_wq_b
from ._names import must_be, renamed, without_head

__all__ = ["decode", "permute_q_b_proj", "permute_wv_proj", "prefill"]

Pair = Tuple[Tensor, Tensor]

_HEAD, _GROUP = 512, 8


def _check_flags(q: Tensor, is_rope_neox_style: Any, rope_dim: Any, n_wv_group: Any,
                 num_per_channels: Any, use_tma_aligned_col_major_sf: Any, round_sf: Any,
                 use_packed_ue8m0: Any, d_v: Any) -> Tuple[int, int]:
    must_be("is_rope_neox_style", is_rope_neox_style, False)
    must_be("rope_dim", rope_dim, 64)
    must_be("num_per_channels", num_per_channels, 32)
    must_be("use_tma_aligned_col_major_sf", use_tma_aligned_col_major_sf, True)
    must_be("round_sf", round_sf, True)
    must_be("use_packed_ue8m0", use_packed_ue8m0, True)
    must_be("d_v", d_v, _HEAD)
    s_q, h_q, _ = shape_of(q, "q", 3)
    if n_wv_group * _GROUP != h_q:
        raise ValueError("n_wv_group: is %r, must be %d heads / 8" % (n_wv_group, h_q))
    return s_q, h_q


def _pair(out: Optional[Pair]) -> Tuple[Optional[Tensor], Optional[Tensor]]:
    if out is None:
        return None, None
    if not isinstance(out, (tuple, list)) or len(out) != 2 or any(t is None for t in out):
        raise ValueError("out: must be None or a pair (out_fp8, out_sf)")
    return out[0], out[1]


_NAMES = {"positions": "token_positions", "cos_sin": "cos_sin_cache", "sink": "attn_sink",
          "scale": "sm_scale", "q_norm_eps": "rms_norm_eps", "out_scale": "out"}


@renamed({**_NAMES, "list": "indices", "lens": "topk_length"})
def prefill(
    enable_q_norm: bool,
    rms_norm_eps: float,
    token_positions: Tensor,
    is_rope_neox_style: bool,
    rope_dim: int,
    cos_sin_cache: Tensor,
    n_wv_group: int,
    num_per_channels: int,
    use_tma_aligned_col_major_sf: bool,
    round_sf: bool,
    use_packed_ue8m0: bool,
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    sm_scale: float,
    d_v: int = 512,
    attn_sink: Optional[Tensor] = None,
    topk_length: Optional[Tensor] = None,
    out: Optional[Pair] = None,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fused call over bf16 rows.

    Args:
        enable_q_norm, rms_norm_eps: V4's RMSNorm of each head of q.
        token_positions: int32 [s_q], row of cos_sin_cache.
        is_rope_neox_style: False. rope_dim: 64.
        cos_sin_cache: float32 [positions, 64].
        n_wv_group: h_q / 8. num_per_channels: 32.
        use_tma_aligned_col_major_sf, round_sf, use_packed_ue8m0: True.
        q: bf16 [s_q, h_q, 512], permuted, not rotated.
        kv: bf16 [s_kv, 1, 512], rotated.
        indices: int32 [s_q, 1, topk]; what is not 0 .. s_kv - 1 is no key.
        sm_scale: above 0. d_v: 512.
        attn_sink: float32 [h_q]. topk_length: int32 [s_q].
        out: (out_fp8, out_sf) to write.

    Returns:
        (out_fp8, out_sf, max_logits, lse), the last two float32 [s_q, h_q].

    Raises:
        ValueError: an argument, named. RuntimeError: the device.
    """
    _check_flags(q, is_rope_neox_style, rope_dim, n_wv_group, num_per_channels,
                 use_tma_aligned_col_major_sf, round_sf, use_packed_ue8m0, d_v)
    out_fp8, out_sf = _pair(out)
    result = attend_rows(
        q, token_positions, cos_sin_cache, kv, without_head(indices, "indices"), topk_length,
        scale=sm_scale, sink=attn_sink, q_layout="fused",
        q_norm_eps=rms_norm_eps if enable_q_norm else None, out=out_fp8, out_scale=out_sf)
    return result.out, result.out_scale, result.max_logits, result.lse


@renamed({**_NAMES, "window_cache": "k_cache", "window_list": "indices_in_kvcache",
          "window_lens": "topk_length", "compressed_cache": "extra_k_cache",
          "compressed_list": "extra_indices_in_kvcache", "compressed_lens": "extra_topk_length"})
def decode(
    enable_q_norm: bool,
    rms_norm_eps: float,
    token_positions: Tensor,
    is_rope_neox_style: bool,
    rope_dim: int,
    cos_sin_cache: Tensor,
    n_wv_group: int,
    num_per_channels: int,
    use_tma_aligned_col_major_sf: bool,
    round_sf: bool,
    use_packed_ue8m0: bool,
    q: Tensor,
    k_cache: Tensor,
    indices_in_kvcache: Tensor,
    sm_scale: float,
    d_v: int = 512,
    attn_sink: Optional[Tensor] = None,
    topk_length: Optional[Tensor] = None,
    extra_k_cache: Optional[Tensor] = None,
    extra_indices_in_kvcache: Optional[Tensor] = None,
    extra_topk_length: Optional[Tensor] = None,
    out: Optional[Pair] = None,
    mega_num_splits: int = 1,
    mega_o_accum: Optional[Tensor] = None,
    mega_lse_accum: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor, Tensor]:
    """The fused call over paged caches.

    Args:
        enable_q_norm ... use_packed_ue8m0, q, sm_scale, d_v, attn_sink, out: as in prefill.
        k_cache: bytes [blocks, page, 1, 584, 528 or 288], the format known by the last dimension.
        indices_in_kvcache: int32 [s_q, topk], slots: block * page + place in it.
        topk_length: int32 [s_q].
        extra_k_cache, extra_indices_in_kvcache, extra_topk_length: a second cache and its list.
        mega_num_splits, mega_o_accum, mega_lse_accum: float32 [splits, s_q, h_q, 512] and [splits,
            s_q, h_q], scratch memory for a kernel that divides the keys of a token. The library does
            so by itself and with its own workspace: they are checked and left as they are, and the
            results are the same for any number of splits.

    Returns:
        (out_fp8, out_sf, lse).

    Raises:
        ValueError: an argument, named. RuntimeError: the device.
    """
    s_q, h_q = _check_flags(q, is_rope_neox_style, rope_dim, n_wv_group, num_per_channels,
                            use_tma_aligned_col_major_sf, round_sf, use_packed_ue8m0, d_v)
    if not isinstance(mega_num_splits, int) or mega_num_splits < 1:
        raise ValueError("mega_num_splits: is %r, must be at least 1" % (mega_num_splits,))
    if (mega_o_accum is None) != (mega_lse_accum is None):
        raise ValueError("mega_%s_accum: is None, must be given together with the other"
                         % ("o" if mega_o_accum is None else "lse"))
    if mega_o_accum is not None:
        for name, tensor, want in (("mega_o_accum", mega_o_accum, (mega_num_splits, s_q, h_q, _HEAD)),
                                   ("mega_lse_accum", mega_lse_accum, (mega_num_splits, s_q, h_q))):
            if tuple(getattr(tensor, "shape", ())) != want:
                raise ValueError("%s: has shape %s, must have %s"
                                 % (name, list(getattr(tensor, "shape", ())), list(want)))
    out_fp8, out_sf = _pair(out)
    extra = extra_indices_in_kvcache
    result = attend_paged(
        q, token_positions, cos_sin_cache, k_cache,
        without_head(indices_in_kvcache, "indices_in_kvcache"), topk_length, extra_k_cache,
        None if extra is None else without_head(extra, "extra_indices_in_kvcache"), extra_topk_length,
        scale=sm_scale, sink=attn_sink, q_layout="fused",
        q_norm_eps=rms_norm_eps if enable_q_norm else None, out=out_fp8, out_scale=out_sf)
    return result.out, result.out_scale, result.lse


def _rows_closest(x: Tensor) -> Tensor:
    """The same elements in memory where rows, the dimension before the last, are contiguous."""
    return framework_of(x).contiguous(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def _granularity(sf: Tensor, cols: int) -> int:
    """Elements under one scale byte: 32 or 128, told by the number of words."""
    for granularity in (32, 128):
        if sf.shape[-1] == -(-cols // (4 * granularity)):
            return granularity
    raise ValueError("weight_and_sf: sf has %d columns, must have %d (a scale for 32) or %d (for 128)"
                     % (sf.shape[-1], -(-cols // 128), -(-cols // 512)))


@renamed({"weight": "weight_and_sf", "n_heads": "h_q"})
def permute_q_b_proj(weight_and_sf: Pair, h_q: int, d_q: int) -> Pair:
    """Rows of the q_b projection, moved so that it emits q as prefill and decode take it.

    Args:
        weight_and_sf: weight e4m3 [h_q * 512, k]; sf int32 [h_q * 512, words], four ue8m0 bytes a
            word, one for 32 or 128 elements, in any strides.
        h_q: heads of this rank, a multiple of 8. d_q: 512.

    Returns:
        (weight, sf), new; sf contiguous along its rows.

    Raises:
        ValueError: an argument, named.
    """
    weight, sf = weight_and_sf
    must_be("d_q", d_q, _HEAD)
    rows, cols = shape_of(weight, "weight_and_sf", 2)
    _granularity(sf, cols)
    if tuple(sf.shape[:-1]) != (rows,):
        raise ValueError("weight_and_sf: sf has %d rows, must have %d" % (sf.shape[0], rows))
    moved, _ = permute_wq_b(framework_of(weight).contiguous(weight), n_heads=h_q)
    words = sf.shape[1]
    planes = sf.swapaxes(0, 1).reshape(words, h_q, 32, 16).swapaxes(1, 2).reshape(words, rows)
    return moved, _rows_closest(planes.swapaxes(0, 1))


@renamed({"weight": "weight_and_sf", "scale": "weight_and_sf"})
def permute_wv_proj(weight_and_sf: Pair, wv_group_size: int, d_o: int) -> Pair:
    """Columns of the output projection, moved to the order of out_fp8.

    Args:
        weight_and_sf: weight e4m3 [groups, n, 4096]; sf int32 [groups, n, 32 or 8], four ue8m0 bytes a
            word, one for 32 or 128 elements, in any strides.
        wv_group_size: 8. d_o: 512.

    Returns:
        (weight, sf), new; sf is [groups, n, 32], always one scale for 32 elements, contiguous along n.

    Raises:
        ValueError: an argument, named.
    """
    weight, sf = weight_and_sf
    must_be("wv_group_size", wv_group_size, _GROUP)
    must_be("d_o", d_o, _HEAD)
    groups, n, cols = shape_of(weight, "weight_and_sf", 3)
    if cols != _GROUP * _HEAD:
        raise ValueError("weight_and_sf: weight has %d columns, must have 4096" % cols)
    coarse = _granularity(sf, cols) == 128
    if tuple(sf.shape[:-1]) != (groups, n):
        raise ValueError("weight_and_sf: sf has shape %s, must begin with %d, %d"
                         % (list(sf.shape), groups, n))
    fw = framework_of(sf)
    scales = fw.as_bytes(fw.contiguous(sf))
    if coarse:
        scales = fw.repeat(scales, 4, 2)
    moved, moved_scales = permute_wo_a(fw.contiguous(weight), fw.contiguous(scales))
    return moved, _rows_closest(fw.as_words(moved_scales))
