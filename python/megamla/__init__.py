"""megamla: the attention of DeepSeek V4.1, fused, on tensors of PyTorch, JAX, CuPy and NumPy.

Every function takes tensors of any framework with DLPack, on the CPU or a CUDA device, without
copies. Results that are not given are made with the framework of the first tensor. Where a framework
has no bf16 or fp8, their bits are taken as uint16 and uint8. An argument that is wrong raises
ValueError, whose message begins with its name; a device that fails raises RuntimeError.

docs/python.md has a complete example; docs/format.md the bytes; docs/numerics.md the rounding.
"""

from ._attend import AttendResult, attend_paged, attend_rows, merge_lse
from ._cache import kv_gather, kv_insert, rope_table
from ._capture import run_capture, save_capture
from ._formats import (Implementation, PlanCounts, Support, implementations, kv_bytes, plan_counts,
                       set_threads, supports)
from ._lists import (ImageReach, TokenList, combined_list, compressed_list, compressed_slots,
                     draft_list, image_spans, ring_slots, window_list)
from ._prefill import PrefillChunk, attend_prefill, prefill_chunks
from ._weights import (expand_scales, permute_wo_a, permute_wq_b, project, project_widen,
                       q_to_fused, q_to_standard)

__all__ = [
    "AttendResult", "ImageReach", "Implementation", "PlanCounts", "PrefillChunk", "Support",
    "TokenList", "attend_paged", "attend_prefill", "attend_rows", "combined_list", "compressed_list",
    "compressed_slots", "draft_list", "expand_scales", "image_spans", "implementations", "kv_bytes",
    "kv_gather", "kv_insert", "merge_lse", "permute_wo_a", "permute_wq_b", "plan_counts",
    "prefill_chunks", "project", "project_widen", "q_to_fused", "q_to_standard", "ring_slots",
    "rope_table", "run_capture", "save_capture", "set_threads", "supports", "window_list",
]


def __getattr__(name: str):
    if name == "__version__":
        from ._native import native

        return native.version()
    raise AttributeError("module 'megamla' has no attribute %r" % name)
