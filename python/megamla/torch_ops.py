"""Custom operators of PyTorch, for torch.compile and CUDA graphs.

    import megamla.torch_ops
    torch.ops.megamla.attend_paged.default(q, positions, ...)

The compiler sees an operator by its schema and by what it does to shapes, and calls the same function
of megamla that eager code calls. The functions below have the arguments of their namesakes in megamla
that a compiled model has a use for; they may be called from code that is compiled and from code that
is not. A mutating operator says so in its schema: (a!) is written.

A CUDA graph may record any of them. The first call of a shape makes a plan, which a recording does
not allow: run once before, as graphs want it anyway.
"""

from typing import Any, Dict, Optional, Tuple

import torch

from . import _attend, _cache, _weights
from ._attend import AttendResult
from ._native import bind_fast

_LIBRARY = torch.library.Library("megamla", "DEF")

_QUERY = "Tensor q, Tensor positions, Tensor cos_sin, "
_PAGED = (_QUERY + "Tensor window_cache, Tensor window_list, Tensor? window_lens, "
          "Tensor? compressed_cache, Tensor? compressed_list, Tensor? compressed_lens, ")
_ROWS = _QUERY + "Tensor kv, Tensor list, Tensor? lens, "
_OPTIONS = ('float scale, Tensor? sink, str q_layout="standard", float? q_norm_eps=None, '
            'str out_form="fp8_permuted", bool batch_invariant=False')
_OUT = "Tensor(a!) out, Tensor(b!)? out_scale, Tensor(c!)? lse, Tensor(d!)? max_logits, "
_RESULTS = " -> (Tensor out, Tensor out_scale, Tensor lse, Tensor max_logits)"

_SCHEMAS = {
    "attend_paged": "(" + _PAGED + _OPTIONS + ")" + _RESULTS,
    "attend_rows": "(" + _ROWS + _OPTIONS + ")" + _RESULTS,
    "attend_paged_out": "(" + _PAGED + _OUT + _OPTIONS + ") -> ()",
    "attend_rows_out": "(" + _ROWS + _OUT + _OPTIONS + ") -> ()",
    "kv_insert": "(Tensor rows, Tensor positions, Tensor slots, Tensor cos_sin, Tensor(a!) cache, "
                 'int ratio=1, Tensor? norm_weight=None, float norm_eps=1e-20, '
                 'str scale_floor="amax") -> ()',
    "kv_gather_out": "(Tensor cache, Tensor block_table, Tensor seq_lens, Tensor? gather_lens, "
                     "int offset, Tensor(a!) out, int ratio=1, int window=0, "
                     "Tensor? query_start=None) -> ()",
    "project": "(Tensor x, Tensor x_scale, Tensor weight, Tensor weight_scale, "
               "Tensor? weight_wide=None) -> Tensor",
}


def _attend_paged(q, positions, cos_sin, window_cache, window_list, window_lens, compressed_cache,
                  compressed_list, compressed_lens, scale, sink, q_layout="standard", q_norm_eps=None,
                  out_form="fp8_permuted", batch_invariant=False):
    return _with_scale(_attend.attend_paged(
        q, positions, cos_sin, window_cache, window_list, window_lens, compressed_cache,
        compressed_list, compressed_lens, scale=scale, sink=sink, q_layout=q_layout,
        q_norm_eps=q_norm_eps, out_form=out_form, batch_invariant=batch_invariant, max_logits=True))


def _attend_rows(q, positions, cos_sin, kv, list, lens, scale, sink, q_layout="standard",
                 q_norm_eps=None, out_form="fp8_permuted", batch_invariant=False):
    return _with_scale(_attend.attend_rows(
        q, positions, cos_sin, kv, list, lens, scale=scale, sink=sink, q_layout=q_layout,
        q_norm_eps=q_norm_eps, out_form=out_form, batch_invariant=batch_invariant))


def _with_scale(result: AttendResult) -> Tuple[Any, ...]:
    """An operator gives tensors only: bf16, which has no scale, gets an empty one."""
    scale = result.out.new_empty(0) if result.out_scale is None else result.out_scale
    return result.out, scale, result.lse, result.max_logits


def _attend_paged_out(q, positions, cos_sin, window_cache, window_list, window_lens,
                      compressed_cache, compressed_list, compressed_lens, out, out_scale, lse,
                      max_logits, scale, sink, q_layout="standard", q_norm_eps=None,
                      out_form="fp8_permuted", batch_invariant=False):
    _attend.attend_paged(
        q, positions, cos_sin, window_cache, window_list, window_lens, compressed_cache,
        compressed_list, compressed_lens, scale=scale, sink=sink, q_layout=q_layout,
        q_norm_eps=q_norm_eps, out_form=out_form, out=out, out_scale=out_scale, lse=lse,
        max_logits=max_logits, batch_invariant=batch_invariant)


def _attend_rows_out(q, positions, cos_sin, kv, list, lens, out, out_scale, lse, max_logits, scale,
                     sink, q_layout="standard", q_norm_eps=None, out_form="fp8_permuted",
                     batch_invariant=False):
    _attend.attend_rows(
        q, positions, cos_sin, kv, list, lens, scale=scale, sink=sink, q_layout=q_layout,
        q_norm_eps=q_norm_eps, out_form=out_form, out=out, out_scale=out_scale, lse=lse,
        max_logits=max_logits, batch_invariant=batch_invariant)


def _kv_insert(rows, positions, slots, cos_sin, cache, ratio=1, norm_weight=None, norm_eps=1e-20,
               scale_floor="amax"):
    _cache.kv_insert(rows, positions, slots, cos_sin, cache, ratio=ratio, norm_weight=norm_weight,
                     norm_eps=norm_eps, scale_floor=scale_floor)


def _kv_gather_out(cache, block_table, seq_lens, gather_lens, offset, out, ratio=1, window=0,
                   query_start=None):
    _cache.kv_gather(cache, block_table, seq_lens, gather_lens, offset=offset, out=out, ratio=ratio,
                     window=window, query_start=query_start)


def _project(x, x_scale, weight, weight_scale, weight_wide=None):
    return _weights.project(x, x_scale, weight, weight_scale, weight_wide=weight_wide)


# ---- what the compiler is told of shapes ---------------------------------------------------------


def _fake_results(q, out_form):
    t, heads, _ = q.shape
    lse, most = (q.new_empty((t, heads), dtype=torch.float32) for _ in range(2))
    if out_form == "bf16":
        return torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(0), lse, most
    if out_form == "fp8_permuted":
        padded = (t + 3) // 4 * 4
        out = q.new_empty((t, heads // 8, 4096), dtype=torch.float8_e4m3fn)
        scale = torch.empty_strided((t, heads // 8, 32), (1, 32 * padded, padded), dtype=torch.int32,
                                    device=q.device)
        return out, scale, lse, most
    out = q.new_empty((t, heads, 512), dtype=torch.float8_e4m3fn)
    fine = out_form == "fp8"
    scale = q.new_empty((t, heads, 16 if fine else 4), dtype=torch.uint8 if fine else torch.float32)
    return out, scale, lse, most


def _fake_paged(q, positions, cos_sin, window_cache, window_list, window_lens, compressed_cache,
                compressed_list, compressed_lens, scale, sink, q_layout="standard", q_norm_eps=None,
                out_form="fp8_permuted", batch_invariant=False):
    return _fake_results(q, out_form)


def _fake_rows(q, positions, cos_sin, kv, list, lens, scale, sink, q_layout="standard",
               q_norm_eps=None, out_form="fp8_permuted", batch_invariant=False):
    return _fake_results(q, out_form)


def _fake_project(x, x_scale, weight, weight_scale, weight_wide=None):
    return x.new_empty((x.shape[0], x.shape[1], weight.shape[1]), dtype=torch.bfloat16)


def _fake_nothing(*args, **kwargs):
    """Of an operator that only writes what it was given."""


_IMPLEMENTATIONS: Dict[str, Tuple[Any, Any]] = {
    "attend_paged": (_attend_paged, _fake_paged), "attend_rows": (_attend_rows, _fake_rows),
    "attend_paged_out": (_attend_paged_out, _fake_nothing),
    "attend_rows_out": (_attend_rows_out, _fake_nothing), "kv_insert": (_kv_insert, _fake_nothing),
    "kv_gather_out": (_kv_gather_out, _fake_nothing), "project": (_project, _fake_project),
}


def _kernel(name: str, function: Any) -> Any:
    """What the dispatcher calls: a function in C where there is one, which takes the arguments as they
    come and leaves those that it does not understand to the one here, or that one."""
    if name not in ("attend_paged_out", "attend_rows_out"):
        return function
    choices = (_attend.Q_LAYOUTS, _attend.OUT_FORMS)
    return bind_fast(name, torch.Tensor, function, choices) or function


for _name, _schema in _SCHEMAS.items():
    _function, _fake = _IMPLEMENTATIONS[_name]
    _LIBRARY.define(_name + _schema, tags=(torch.Tag.pt2_compliant_tag,))
    # One implementation for all devices: the library finds out where the tensors are.
    _LIBRARY.impl(_name, _kernel(_name, _function), "CompositeExplicitAutograd")
    if _schema.endswith("-> ()"):  # PyTorch need not look for results to warn of gradients of
        _LIBRARY.impl(_name, torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake("megamla::" + _name, _fake, lib=_LIBRARY)

_OPS = torch.ops.megamla
_paged_op, _rows_op = _OPS.attend_paged.default, _OPS.attend_rows.default
_insert_op, _project_op = _OPS.kv_insert.default, _OPS.project.default


# ---- for callers ---------------------------------------------------------------------------------


def _result(out_form: str, results: Tuple[torch.Tensor, ...]) -> AttendResult:
    out, out_scale, lse, max_logits = results
    return AttendResult(out, None if out_form == "bf16" else out_scale, lse, max_logits)


def attend_paged(
    q: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor, window_cache: torch.Tensor,
    window_list: torch.Tensor, window_lens: Optional[torch.Tensor] = None,
    compressed_cache: Optional[torch.Tensor] = None,
    compressed_list: Optional[torch.Tensor] = None, compressed_lens: Optional[torch.Tensor] = None,
    *, scale: float = _attend.MODEL_SCALE, sink: Optional[torch.Tensor] = None,
    q_layout: str = "standard", q_norm_eps: Optional[float] = None,
    out_form: str = "fp8_permuted", batch_invariant: bool = False,
) -> AttendResult:
    """megamla.attend_paged as an operator, with new results; max_logits is among them."""
    return _result(out_form, _paged_op(
        q, positions, cos_sin, window_cache, window_list, window_lens, compressed_cache,
        compressed_list, compressed_lens, scale, sink, q_layout, q_norm_eps, out_form,
        batch_invariant))


def attend_rows(
    q: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor, kv: torch.Tensor,
    list: torch.Tensor, lens: Optional[torch.Tensor] = None, *,
    scale: float = _attend.MODEL_SCALE, sink: Optional[torch.Tensor] = None,
    q_layout: str = "standard", q_norm_eps: Optional[float] = None,
    out_form: str = "fp8_permuted", batch_invariant: bool = False,
) -> AttendResult:
    """megamla.attend_rows as an operator, with new results."""
    return _result(out_form, _rows_op(q, positions, cos_sin, kv, list, lens, scale, sink, q_layout,
                                      q_norm_eps, out_form, batch_invariant))


def kv_insert(
    rows: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, cos_sin: torch.Tensor,
    cache: torch.Tensor, *, ratio: int = 1, norm_weight: Optional[torch.Tensor] = None,
    norm_eps: float = 1e-20, scale_floor: str = "amax",
) -> None:
    """megamla.kv_insert as an operator, which writes the cache."""
    _insert_op(rows, positions, slots, cos_sin, cache, ratio, norm_weight, norm_eps, scale_floor)


def project(x: torch.Tensor, x_scale: torch.Tensor, weight: torch.Tensor,
            weight_scale: torch.Tensor, *,
            weight_wide: Optional[torch.Tensor] = None) -> torch.Tensor:
    """megamla.project as an operator."""
    return _project_op(x, x_scale, weight, weight_scale, weight_wide)
