"""Record formats by name, and the sizes they bring."""

from typing import List, NamedTuple, Optional, Tuple

from ._frameworks import choose
from ._native import native

FORMATS = {"v4": 1, "v41_fp8": 2, "v41_fp4": 3, "index_fp8": 4, "index_fp4": 5}
_WITH_NONE = dict(FORMATS, none=0)
_KINDS = {"paged": 0, "rows": 1}


def kv_bytes(format: str, page_tokens: Optional[int] = None, n_pages: int = 1) -> int:
    """Bytes of a record, or of pages with page_tokens records each.

    Args:
        format: "v4" (584 bytes a record), "v41_fp8" (528), "v41_fp4" (288), "index_fp8" (132) or
            "index_fp4" (68).
        page_tokens: records a page, 1 .. 65536; None: the bytes of one record, which size a cache but
            are no distance between records.
        n_pages: pages, each rounded up to the alignment that engines use (576 for v4, 512 for v41,
            16 for index keys).

    Raises:
        ValueError: format or page_tokens.
    """
    number = choose(FORMATS, "format", format)
    if page_tokens is None:
        return native.kv_sizes(number, 0) * n_pages
    if page_tokens == 0:
        raise ValueError("page_tokens: is 0, must be 1 .. 65536")
    return native.kv_sizes(number, page_tokens) * n_pages


def parse_device(device: str) -> Tuple[int, int]:
    """"cpu", "cuda" or "cuda:1" as the library's kind and index."""
    kind, _, index = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise ValueError("device: is %r, must be cpu, cuda or cuda:N" % (device,))
    return (0 if kind == "cpu" else 1), int(index or 0)


class Support:
    """The answer of supports(): true or false, and why."""

    def __init__(self, reason: Optional[str]) -> None:
        self.reason = reason or ""

    def __bool__(self) -> bool:
        return not self.reason

    def __repr__(self) -> str:
        return "Support(%s)" % ("yes" if self else "no: " + self.reason)


def supports(
    n_heads: int,
    window_format: str = "v41_fp8",
    compressed_format: str = "none",
    *,
    kind: str = "paged",
    out_form: str = "fp8_permuted",
    q_norm: bool = False,
    device: str = "cpu",
    implementation: Optional[str] = None,
) -> Support:
    """Whether a device can attend with these heads and formats.

    Args:
        n_heads: heads of one call.
        window_format, compressed_format: formats of attend_paged's caches; "none": no such cache.
        kind: "paged" for attend_paged, "rows" for attend_rows.
        out_form, q_norm: as in attend_paged.
        device: "cpu", "cuda" or "cuda:N".
        implementation: a name; None: any.

    Returns:
        Support, which is true or false, and whose reason is the library's sentence.

    Raises:
        ValueError: a word that means nothing.
    """
    from ._attend import OUT_FORMS

    number, index = parse_device(device)
    return Support(native.supports(
        number, index, choose(_KINDS, "kind", kind), n_heads,
        choose(_WITH_NONE, "window_format", window_format),
        choose(_WITH_NONE, "compressed_format", compressed_format),
        choose(OUT_FORMS, "out_form", out_form), bool(q_norm), implementation))


class Implementation(NamedTuple):
    """One implementation of one operation, as a device sees it."""

    op: str
    name: str
    available: bool
    by_name_only: bool
    reason: str


def implementations(device: str = "cpu") -> Tuple[Implementation, ...]:
    """Everything the library holds, available on the device or not, best first for each operation.

    Raises:
        RuntimeError: there is no such device.
    """
    kind, index = parse_device(device)
    found: List[Implementation] = []
    while True:
        text = native.implementation(kind, index, len(found))
        if text is None:
            return tuple(found)
        op, name, available, by_name_only, reason = text.split(" ", 4)
        found.append(Implementation(op, name, available == "1", by_name_only == "1", reason))


def set_threads(n_threads: int) -> None:
    """Threads of every later call on the CPU, 1 .. 4096; 0, the default: every core allowed.

    Raises:
        ValueError: n_threads.
    """
    native.set_threads(n_threads)


class PlanCounts(NamedTuple):
    """How many plans are kept, and how many were ever made."""

    kept: int
    created: int


def plan_counts() -> PlanCounts:
    """Plans are made at the first call of a shape and kept; the 256 used last stay."""
    both = native.plan_counts()
    return PlanCounts(both >> 32, both & 0xFFFFFFFF)
