"""attend_paged, attend_rows, merge_lse: the fused call and the joining of its parts."""

from typing import NamedTuple, Optional, Union

from ._formats import FORMATS
from ._frameworks import Framework, Tensor, _of_type, choose, framework_of, run, shape_of
from ._native import native

Q_LAYOUTS = {"standard": 0, "fused": 1}
OUT_FORMS = {"fp8_permuted": 0, "fp8": 1, "fp8_128": 2, "bf16": 3}
MODEL_SCALE = 512 ** -0.5

_OUT_KINDS = ("e4m3", "e4m3", "e4m3", "bf16")


class AttendResult(NamedTuple):
    """Results of a call over T tokens and H heads; G = H / 8. What was not asked for is None."""

    out: Tensor
    """fp8_permuted: e4m3 [T, G, 4096], in the order of a permuted wo_a; fp8 and fp8_128: e4m3
    [T, H, 512]; bf16: bf16 [T, H, 512]."""
    out_scale: Optional[Tensor]
    """fp8_permuted: int32 [T, G, 32] with token stride 1, four ue8m0 bytes a word; fp8: ue8m0 uint8
    [T, H, 16]; fp8_128: float32 [T, H, 4]; bf16: None."""
    lse: Optional[Tensor]
    """float32 [T, H]: natural log of the sum of exp of the scaled logits, the sink left out; +inf
    where there is no key."""
    max_logits: Optional[Tensor]
    """float32 [T, H]: the largest scaled logit; -inf where there is no key."""


_new = tuple.__new__  # a NamedTuple's own constructor takes three times as long
AT_WORKSPACE, AT_STREAM = 15, 16


def _choices(q: Tensor, out_form: str, q_layout: str):
    """The framework and the numbers of the two choices, or what is wrong with them."""
    return (framework_of(q), choose(OUT_FORMS, "out_form", out_form),
            choose(Q_LAYOUTS, "q_layout", q_layout))


def _make_outputs(fw: Framework, like: Tensor, t: int, heads: int, form: int, out, out_scale):
    """out, and what the library writes the scales to; what the caller gave stays."""
    if out is not None:
        return out, out_scale
    if out_scale is not None:
        raise ValueError("out: is None, must be given together with out_scale")
    if form == 0:
        return (fw.empty(like, (t, heads // 8, 4096), "e4m3"),
                fw.planes(like, t, heads // 8))
    out = fw.empty(like, (t, heads, 512), _OUT_KINDS[form])
    if form == 1:
        return out, fw.empty(like, (t, heads, 16), "ue8m0")
    return out, fw.empty(like, (t, heads, 4), "f32") if form == 2 else None


def _make_results(fw: Framework, like: Tensor, form: int, out, out_scale, lse, max_logits):
    """The results that the caller did not give; True stands for one that is wanted."""
    t, heads, _ = shape_of(like, "q", 3)
    out, out_scale = _make_outputs(fw, like, t, heads, form, out, out_scale)
    if lse is True:
        lse = fw.empty(like, (t, heads), "f32")
    if max_logits is True:
        max_logits = fw.empty(like, (t, heads), "f32")
    return out, out_scale, lse, max_logits


def attend_paged(
    q: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    window_cache: Tensor,
    window_list: Tensor,
    window_lens: Optional[Tensor] = None,
    compressed_cache: Optional[Tensor] = None,
    compressed_list: Optional[Tensor] = None,
    compressed_lens: Optional[Tensor] = None,
    *,
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
    """Attention over paged caches, fused: rotate q, attend, rotate back, cast.

    T tokens, H heads (a multiple of 8, 8 .. 128). All tensors are on one device; on a GPU the work
    is enqueued on the framework's current stream and may be captured into a CUDA graph, once a call
    of the same shapes has made the plan.

    Args:
        q: bf16 [T, H, 512], each token contiguous, 16-byte aligned. With q_layout "fused" the numbers
            of a token are in the order that a permuted wq_b emits.
        positions: int32 [T], row of cos_sin. A token whose position lies outside gets NaN.
        cos_sin: float32 [P, 64], 32 cosines and 32 sines a position.
        window_cache: bytes [pages, page tokens, record bytes], also with a 1 before the last; pages may
            be further apart than they are long. The format is known by the record bytes: 584 (v4), 528
            (v41_fp8), 288 (v41_fp4). Or [pages, bytes of a page] with window_format and
            window_page_tokens.
        window_list: int32 [T, K], slots (page * page tokens + record); an entry outside the cache is no
            key.
        window_lens: int32 [T], entries of each list; None: K.
        compressed_cache, compressed_list, compressed_lens: a second cache and its list [T, E]. Pairs:
            any format with itself, v41_fp8 with v41_fp4.
        scale: of the logits, above 0; 512 ** -0.5 in the model.
        sink: float32 [H], a logit in the denominator alone. -inf: none; +inf: output 0.
        q_layout: "standard" or "fused".
        q_norm_eps: V4's RMSNorm of each head of q; None: no norm.
        out_form: "fp8_permuted", "fp8", "fp8_128" or "bf16"; AttendResult says what they hold.
        out, out_scale: results to write, both or neither; 32-byte and 4-byte aligned.
        lse, max_logits: True, False, or a float32 [T, H] to write.
        n_faults: int32 [1]; the number of positions outside cos_sin is added (a GPU cannot raise).
        batch_invariant: a token's bits do not depend on the batch around it (always so on a CPU).
        implementation: a name of megamla.implementations(); None: the best.
        workspace: bytes on the device; None: taken from the framework's allocator.
        stream: a cudaStream_t as a number; None: the framework's current stream.
        window_format, window_page_tokens, compressed_format, compressed_page_tokens: see window_cache.

    Returns:
        AttendResult(out, out_scale, lse, max_logits).

    Raises:
        ValueError: an argument; the message begins with its name. On a CPU also when a position lies
            outside cos_sin, after all other tokens are complete.
        RuntimeError: the device is missing, unsupported, or refused the work.
    """
    try:  # this part is in every call of every layer, so it does no more than it must
        fw, form, layout = _of_type[type(q)], OUT_FORMS[out_form], Q_LAYOUTS[q_layout]
    except (KeyError, TypeError):
        fw, form, layout = _choices(q, out_form, q_layout)
    if lse is False:
        lse = None
    if max_logits is False:
        max_logits = None
    made = out is None
    if made or lse is True or max_logits is True:
        out, out_scale, lse, max_logits = _make_results(fw, q, form, out, out_scale, lse, max_logits)
    window = compressed = 0
    if window_format is not None:
        window = choose(FORMATS, "window_format", window_format)
    if compressed_format is not None:
        compressed = choose(FORMATS, "compressed_format", compressed_format)
    args = (q, positions, cos_sin, sink, out, out_scale, lse, max_logits, n_faults, scale, layout,
            q_norm_eps, form, batch_invariant, implementation, workspace, stream, window_cache, window,
            window_page_tokens, compressed_cache, compressed, compressed_page_tokens, window_list,
            window_lens, compressed_list, compressed_lens)
    fast = fw.fast_paged
    if fast is None or fast(*args) is not None:
        run(fw, q, native.attend_paged, args, AT_WORKSPACE, AT_STREAM)
        if fw.deferred and made and form == 0:
            out_scale = fw.scales(out_scale, q.shape[0])
    return _new(AttendResult, (out, out_scale, lse, max_logits))


def attend_rows(
    q: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    kv: Tensor,
    list: Tensor,
    lens: Optional[Tensor] = None,
    *,
    scale: float = MODEL_SCALE,
    sink: Optional[Tensor] = None,
    q_layout: str = "standard",
    q_norm_eps: Optional[float] = None,
    out_form: str = "fp8_permuted",
    out: Optional[Tensor] = None,
    out_scale: Optional[Tensor] = None,
    lse: Union[bool, Tensor] = True,
    max_logits: Union[bool, Tensor] = True,
    n_faults: Optional[Tensor] = None,
    batch_invariant: bool = False,
    implementation: Optional[str] = None,
    workspace: Optional[Tensor] = None,
    stream: Optional[int] = None,
) -> AttendResult:
    """Attention over bf16 rows that are already rotated, such as kv_gather makes for a prefill.

    Args:
        kv: bf16 [S, 512], also with a 1 between; rows may be further apart, by a multiple of 8.
        list: int32 [T, K], row numbers of kv; any other number is no key.
        lens: int32 [T], entries of each list; None: K.
        The others, results and errors are those of attend_paged.
    """
    try:  # this part is in every call of every layer, so it does no more than it must
        fw, form, layout = _of_type[type(q)], OUT_FORMS[out_form], Q_LAYOUTS[q_layout]
    except (KeyError, TypeError):
        fw, form, layout = _choices(q, out_form, q_layout)
    if lse is False:
        lse = None
    if max_logits is False:
        max_logits = None
    made = out is None
    if made or lse is True or max_logits is True:
        out, out_scale, lse, max_logits = _make_results(fw, q, form, out, out_scale, lse, max_logits)
    args = (q, positions, cos_sin, sink, out, out_scale, lse, max_logits, n_faults, scale, layout,
            q_norm_eps, form, batch_invariant, implementation, workspace, stream, kv, list, lens)
    fast = fw.fast_rows
    if fast is None or fast(*args) is not None:
        run(fw, q, native.attend_rows, args, AT_WORKSPACE, AT_STREAM)
        if fw.deferred and made and form == 0:
            out_scale = fw.scales(out_scale, q.shape[0])
    return _new(AttendResult, (out, out_scale, lse, max_logits))


def merge_lse(
    out_a: Tensor,
    lse_a: Tensor,
    out_b: Tensor,
    lse_b: Tensor,
    *,
    sink: Optional[Tensor] = None,
    out_form: str = "fp8_permuted",
    out: Optional[Tensor] = None,
    out_scale: Optional[Tensor] = None,
    lse: Union[bool, Tensor] = True,
    stream: Optional[int] = None,
) -> AttendResult:
    """Join two partial results of the same queries over disjoint keys into that of all keys.

    The parts are those of calls with out_form "bf16" and no sink.

    Args:
        out_a, out_b: bf16 [T, H, 512], contiguous, 16-byte aligned.
        lse_a, lse_b: float32 [T, H], natural log; +inf: that part had no key.
        sink, out_form, out, out_scale, lse, stream: as in attend_paged.

    Returns:
        AttendResult; max_logits is None.

    Raises:
        ValueError, RuntimeError: as attend_paged.
    """
    fw = framework_of(out_a)
    form = choose(OUT_FORMS, "out_form", out_form)
    t, heads, _ = shape_of(out_a, "out_a", 3)
    made = out is None
    out, out_scale = _make_outputs(fw, out_a, t, heads, form, out, out_scale)
    if lse is True:
        lse = fw.empty(out_a, (t, heads), "f32")
    elif lse is False:
        lse = None
    run(fw, out_a, native.merge,
        (out_a, lse_a, out_b, lse_b, sink, out, out_scale, lse, form, stream), None, 9)
    if fw.deferred and made and form == 0:
        out_scale = fw.scales(out_scale, t)
    return AttendResult(out, out_scale, lse, None)
