"""Weights prepared once, q's layout both ways, and the output projection wo_a."""

from typing import Optional, Tuple

from ._frameworks import Tensor, framework_of, run, shape_of
from ._native import native

_PERMUTE_WQ_B, _PERMUTE_WO_A, _EXPAND_SCALES, _Q_TO_FUSED, _Q_TO_STANDARD = range(5)
_STREAM = 6


def _like(tensor: Tensor, name: str) -> Tensor:
    """An empty tensor of the same shape and dtype."""
    fw = framework_of(tensor)
    if not hasattr(tensor, "__dlpack__"):
        raise ValueError("%s: is not a tensor (an array with __dlpack__)" % name)
    made = fw.empty(tensor, tuple(tensor.shape), "u8")
    return made.view(tensor.dtype) if hasattr(made, "view") else made


def _permute(kind: int, n_heads: int, weight: Tensor, scale: Optional[Tensor],
             stream: Optional[int]) -> Tuple[Tensor, Optional[Tensor]]:
    out = _like(weight, "weight")
    out_scale = None if scale is None else _like(scale, "scale")
    run(framework_of(weight), weight, native.weights,
        (kind, n_heads, weight, out, scale, out_scale, stream), None, _STREAM)
    return out, out_scale


def permute_wq_b(
    weight: Tensor, scale: Optional[Tensor] = None, *, n_heads: int, stream: Optional[int] = None
) -> Tuple[Tensor, Optional[Tensor]]:
    """Rows of wq_b, moved so that the projection emits q in the layout "fused".

    Args:
        weight: bytes (e4m3) [H * 512, K], contiguous; the rows of this rank.
        scale: bytes (ue8m0) [H * 512, S], one scale row a weight row (expand_scales), or None.
        n_heads: H of this rank, a multiple of 8.

    Returns:
        (weight, scale), new tensors; scale is None when none was given.

    Raises:
        ValueError: an argument, named.
    """
    return _permute(_PERMUTE_WQ_B, n_heads, weight, scale, stream)


def permute_wo_a(
    weight: Tensor, scale: Optional[Tensor] = None, *, stream: Optional[int] = None
) -> Tuple[Tensor, Optional[Tensor]]:
    """Columns of wo_a, moved to the order of the out_form "fp8_permuted".

    Args:
        weight: bytes (e4m3) [N, 4096] or [G, N, 4096], contiguous.
        scale: bytes (ue8m0) [N, 128] or [G, N, 128], or None.

    Returns:
        (weight, scale), new tensors; scale is None when none was given.

    Raises:
        ValueError: an argument, named.
    """
    return _permute(_PERMUTE_WO_A, 0, weight, scale, stream)


def expand_scales(scale: Tensor, rows: int, *, stream: Optional[int] = None) -> Tensor:
    """One scale row for 32 weight rows -> one for each.

    Args:
        scale: bytes [ceil(rows / 32), S], contiguous.
        rows: weight rows.

    Returns:
        bytes [rows, S].

    Raises:
        ValueError: an argument, named.
    """
    fw = framework_of(scale)
    cols = shape_of(scale, "scale", 2)[1]
    out = fw.empty(scale, (rows, cols), "ue8m0")
    run(fw, scale, native.weights, (_EXPAND_SCALES, 0, None, None, scale, out, stream), None, _STREAM)
    return out


def _q(kind: int, q: Tensor, stream: Optional[int]) -> Tensor:
    fw = framework_of(q)
    t, heads, width = shape_of(q, "q", 3)
    if width != 512:
        raise ValueError("q: has %d in dimension 2, must have 512, the width of a head" % width)
    out = fw.empty(q, (t, heads, 512), "bf16")
    run(fw, q, native.weights, (kind, heads, q, out, None, None, stream), None, _STREAM)
    return out


def q_to_fused(q: Tensor, *, stream: Optional[int] = None) -> Tensor:
    """bf16 q [T, H, 512], contiguous, from the layout "standard" to "fused"; a new tensor.

    Raises:
        ValueError: q.
    """
    return _q(_Q_TO_FUSED, q, stream)


def q_to_standard(q: Tensor, *, stream: Optional[int] = None) -> Tensor:
    """bf16 q [T, H, 512], contiguous, from the layout "fused" to "standard"; a new tensor.

    Raises:
        ValueError: q.
    """
    return _q(_Q_TO_STANDARD, q, stream)


def project(
    x: Tensor,
    x_scale: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    *,
    weight_wide: Optional[Tensor] = None,
    out: Optional[Tensor] = None,
    implementation: Optional[str] = None,
    workspace: Optional[Tensor] = None,
    stream: Optional[int] = None,
) -> Tensor:
    """wo_a, the grouped output projection of attend's "fp8_permuted" results.

    Args:
        x: e4m3 [T, G, 4096], contiguous, 16-byte aligned; attend's out.
        x_scale: attend's out_scale, int32 [T, G, 32] with token stride 1; or plain ue8m0 bytes
            [T, G, 128].
        weight: e4m3 [G, N, 4096], permuted by permute_wo_a, 16-byte aligned; N a multiple of 8.
        weight_scale: ue8m0 bytes [G, N, 128], permuted with it.
        weight_wide: the same weight by project_widen, or None. Calls of more than 16 tokens are then
            faster, and the bits of a token depend on how many there are. Where project_widen
            raises, it is ignored.
        out: bf16 [T, G, N] to write.
        implementation, workspace, stream: as in attend_paged.

    Returns:
        out.

    Raises:
        ValueError: an argument, named.
        RuntimeError: the device.
    """
    fw = framework_of(x)
    if out is None:
        t, groups, _ = shape_of(x, "x", 3)
        out = fw.empty(x, (t, groups, shape_of(weight, "weight", 3)[1]), "bf16")
    run(fw, x, native.project,
        (x, x_scale, weight, weight_scale, weight_wide, out, implementation, workspace, stream), 7, 8)
    return out


def project_widen(
    weight: Tensor,
    weight_scale: Tensor,
    *,
    out: Optional[Tensor] = None,
    implementation: Optional[str] = None,
    stream: Optional[int] = None,
) -> Tensor:
    """A weight of project for calls of more than a few tokens on a Hopper GPU, made once when it is loaded.

    Args:
        weight, weight_scale: as in project, which still needs them.
        out: bytes to write, 128-byte aligned; 8,200 a row, of which a group has a multiple of 256.
        implementation, stream: as in attend_paged.

    Returns:
        out, for project's weight_wide; its contents belong to this version of the library.

    Raises:
        ValueError: an argument, named; weight, where the device has no use for it.
        RuntimeError: the device.
    """
    fw = framework_of(weight)
    if out is None:
        needed = native.project_widen(weight, weight_scale, None, implementation, stream)
        out = fw.empty(weight, (needed,), "u8")
    run(fw, weight, native.project_widen, (weight, weight_scale, out, implementation, stream), None, 4)
    return out
