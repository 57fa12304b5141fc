"""Captures: one call of one operation in a file, as docs/captures.md has it, saved and replayed.

A capture is a safetensors file, which is simple enough to be written here. What a running engine
saves, `megamla run` replays anywhere.
"""

import inspect
import json
import os
import sys
from typing import Any, Dict, Optional, Tuple

from . import _attend, _cache, _formats, _lists, _weights
from ._frameworks import Tensor

VERSION = "1"
_CODES = {"uint8": "U8", "int8": "U8", "bool": "U8", "float32": "F32", "int32": "I32", "int64": "I64",
          "uint16": "BF16", "int16": "BF16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
          "float8_e8m0fnu": "U8"}
_DTYPES = {"U8": "uint8", "F8_E4M3": "uint8", "BF16": "uint16", "F32": "float32", "I32": "int32",
           "I64": "int64"}
_HEADER_BYTES_MAX = 1 << 20


def _host(tensor: Tensor, name: str) -> Tuple[Any, str]:
    """A tensor as a contiguous NumPy array of its bits, and the code of its dtype."""
    import numpy

    dtype = str(getattr(tensor, "dtype", "")).replace("torch.", "")
    if dtype not in _CODES:
        raise ValueError("%s: has no dtype that a capture can hold: %r" % (name, dtype))
    code = _CODES[dtype]
    root = type(tensor).__module__.partition(".")[0]
    if root == "torch":
        torch = sys.modules["torch"]
        bits = {"BF16": torch.int16, "F8_E4M3": torch.uint8, "U8": torch.uint8}.get(code)
        tensor = tensor.detach().cpu()
        tensor = (tensor if bits is None else tensor.contiguous().view(bits)).numpy()
    elif root == "cupy":
        tensor = sys.modules["cupy"].asnumpy(tensor)
    # In the order of the indices, whatever the strides; and the bits as plain numbers.
    return numpy.ascontiguousarray(tensor).view(_DTYPES[code]), code


def _cache_pages(tensor: Tensor, name: str, format: Optional[str], page_tokens: int):
    """A cache as bytes [pages, bytes of a page], its format and the records of a page."""
    import numpy

    pages, _ = _host(tensor, name)
    if pages.ndim == 2:
        if format is None or not page_tokens:
            raise ValueError("%s: is [pages, bytes of a page], which needs its format told" % name)
        return pages, format, page_tokens
    for known in _formats.FORMATS:
        if _formats.kv_bytes(known) == pages.shape[-1]:
            break
    else:
        raise ValueError("%s: has records of %d bytes, which is no format" % (name, pages.shape[-1]))
    n, tokens = pages.shape[:2]
    # Pages stand apart so that each begins at a multiple of 16, as the library wants it.
    whole = numpy.zeros((n, -(-tokens * pages.shape[-1] // 16) * 16), numpy.uint8)
    whole[:, :tokens * pages.shape[-1]] = pages.reshape(n, -1)
    return whole, known, tokens


def _write(path: str, tensors: Dict[str, Tuple[Any, str]], metadata: Dict[str, str]) -> None:
    header: Dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, (array, code) in tensors.items():
        header[name] = {"dtype": code, "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = "%s.%d.partial" % (path, os.getpid())
    try:
        with open(partial, "wb") as file:
            file.write(len(text).to_bytes(8, "little"))
            file.write(text)
            for array, _ in tensors.values():
                file.write(array.tobytes())
        os.replace(partial, path)  # whole or not at all
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


def _fail(path: str, why: str) -> None:
    raise ValueError("path: %s: %s" % (path, why))


def _read(path: str) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Tensors as NumPy arrays over the mapped file, and the metadata."""
    import numpy

    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _HEADER_BYTES_MAX):
            _fail(path, "is no safetensors file, or its header is too long")
        try:
            header = json.loads(file.read(length))
            metadata = header.pop("__metadata__")
            entries = {name: (e["dtype"], [int(n) for n in e["shape"]], *map(int, e["data_offsets"]))
                       for name, e in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _fail(path, "has a header that is no capture's: %r" % error)
    if not isinstance(metadata, dict) or metadata.get("megamla") != VERSION:
        _fail(path, "is no capture of version %s" % VERSION)
    data: Any = numpy.empty(0, numpy.uint8)
    if size > 8 + length:
        data = numpy.memmap(path, numpy.uint8, "r", 8 + length)
    tensors = {}
    for name, (code, shape, begin, end) in entries.items():
        if code not in _DTYPES or any(n < 0 for n in shape):
            _fail(path, "%s: has an unknown dtype or shape" % name)
        dtype = numpy.dtype(_DTYPES[code])
        count = 1
        for n in shape:
            count *= n
        if not 0 <= begin <= end <= size - 8 - length or end - begin != count * dtype.itemsize:
            _fail(path, "%s: lies outside the file, or is not as long as its shape" % name)
        # A copy: aligned, writable, and the file may go.
        raw = numpy.empty(end - begin + 64, numpy.uint8)
        at = -raw.ctypes.data % 64
        raw = raw[at:at + end - begin]
        if end > begin:
            raw[:] = data[begin:end]
        tensors[name] = raw.view(dtype).reshape(shape)
    return tensors, metadata


# Operation -> (function, tensors, attributes), by their names in Python; _IN_FILE has the others.
_OPS: Dict[str, Tuple[Any, Tuple[str, ...], Tuple[str, ...]]] = {
    "attend_paged": (_attend.attend_paged,
                     ("q", "positions", "cos_sin", "sink", "window_cache", "window_list",
                      "window_lens", "compressed_cache", "compressed_list", "compressed_lens"),
                     ("scale", "q_layout", "q_norm_eps", "out_form")),
    "attend_rows": (_attend.attend_rows,
                    ("q", "positions", "cos_sin", "sink", "kv", "list", "lens"),
                    ("scale", "q_layout", "q_norm_eps", "out_form")),
    "kv_insert": (_cache.kv_insert,
                  ("rows", "positions", "slots", "cos_sin", "cache", "norm_weight"),
                  ("ratio", "scale_floor", "norm_eps")),
    "kv_gather": (_cache.kv_gather, ("cache", "block_table", "seq_lens", "gather_lens"),
                  ("rows", "offset")),
    "window_list": (_lists.window_list, ("query_start", "seq_lens", "block_table", "valid"),
                    ("window", "page_tokens", "width")),
    "compressed_list": (_lists.compressed_list, ("topk", "request", "block_table", "valid"),
                        ("page_tokens",)),
    "combined_list": (_lists.combined_list,
                      ("topk", "query_start", "seq_lens", "gather_lens", "left", "right"),
                      ("window", "ratio", "topk_limit", "request_rows", "window_offset",
                       "image_tokens")),
    "compressed_slots": (_lists.compressed_slots, ("positions", "slots", "request", "block_table"),
                         ("ratio", "page_tokens")),
    "permute_wq_b": (_weights.permute_wq_b, ("weight", "scale"), ("n_heads",)),
    "permute_wo_a": (_weights.permute_wo_a, ("weight", "scale"), ()),
    "project": (_weights.project, ("x", "x_scale", "weight", "weight_scale"), ()),
}
_REALS = ("scale", "q_norm_eps", "norm_eps")
_CHOICES = ("q_layout", "out_form", "scale_floor")
_IN_FILE = {"topk_limit": "topk", "request_rows": "M", "window_offset": "N", "n_heads": "heads"}


def _plain_scales(x_scale: Tensor) -> Tuple[Any, str]:
    """Packed scale words [T, G, 32] as the plain bytes [T, G, 128] of a capture."""
    array, code = _host(x_scale, "x_scale")
    return (array.view("uint8"), "U8") if code == "I32" else (array, code)


def _window_rows(call: Dict[str, Any]) -> Any:
    """What kv_gather takes with a window, as gather_lens."""
    import numpy

    starts, seq = (_host(call[name], name)[0].astype(numpy.int64) for name in ("query_start", "seq_lens"))
    seq = numpy.maximum(seq, 0)
    query = numpy.clip(numpy.diff(starts), 0, seq)
    return (query + numpy.minimum(seq - query, call["window"] - 1)).astype(numpy.int32)


def _in_records(op: str, call: Dict[str, Any]) -> None:
    """A capture knows no ratio and no window of kv_gather, and always gather_lens of combined_list: what
    they stand for is written instead."""
    if op == "kv_gather" and call["ratio"] != 1 and call["window"] > 0:  # as the call itself says
        raise ValueError("window: must be 0 for records of ratio %d" % call["ratio"])
    if op in ("kv_gather", "combined_list") and call["gather_lens"] is None and call["window"] > 0:
        call["gather_lens"] = _window_rows(call)
    if op == "kv_gather" and call["ratio"] != 1:
        call["seq_lens"] = _host(call["seq_lens"], "seq_lens")[0] // call["ratio"]


def save_capture(path: str, op: str, /, *args: Any, **kwargs: Any) -> None:
    """Write a call to a file instead of making it, for `megamla run` and run_capture.

    save_capture("call.safetensors", "attend_paged", q, positions, ...) takes the arguments that
    megamla.attend_paged takes. Tensors of a GPU are copied to the host, which waits for what they are
    computed from; tensors of results and what a replay has no use for are left out. The file appears
    whole or not at all.

    Args:
        path: the file.
        op: "attend_paged", "attend_rows", "kv_insert", "kv_gather", "window_list",
            "compressed_list", "combined_list", "compressed_slots", "permute_wq_b", "permute_wo_a" or
            "project".

    Raises:
        ValueError: op, or an argument that has no place in a capture.
        TypeError: arguments that the operation does not have.
        OSError: the file.
    """
    if op not in _OPS:
        raise ValueError("op: is %r, must be one of %s" % (op, ", ".join(_OPS)))
    function, names, attributes = _OPS[op]
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    call = bound.arguments
    _in_records(op, call)
    tensors: Dict[str, Tuple[Any, str]] = {}
    metadata = {"megamla": VERSION, "op": op}
    for name in names:
        value = call.get(name)
        if value is None:
            continue
        if name.endswith("cache"):
            prefix = name[:-len("cache")]
            pages, format, tokens = _cache_pages(value, name, call.get(prefix + "format"),
                                                 call.get(prefix + "page_tokens") or 0)
            tensors[name] = (pages, "U8")
            metadata[name + ".format"] = format
            metadata[name + ".page_tokens"] = str(tokens)
        elif name == "x_scale":
            tensors[name] = _plain_scales(value)
        elif op == "project" and name in ("x", "weight"):
            tensors[name] = (_host(value, name)[0], "F8_E4M3")
        else:
            array, code = _host(value, name)
            tensors[name] = (array.reshape(-1, 512) if name == "kv" else array, code)
    for name in attributes:
        value = call.get(name)
        if name == "rows" and value is None:
            value = call["out"].shape[1]
        if name == "width" and value is None:
            value = call["window"]
        if value is None or (name == "norm_eps" and call["norm_weight"] is None):
            continue
        in_file = _IN_FILE.get(name, name)
        metadata[in_file] = repr(float(value)) if name in _REALS else str(value)
    if call.get("implementation") is not None and op.startswith("attend"):
        metadata["impl"] = call["implementation"]
    _write(path, tensors, metadata)


def run_capture(path: str, *, implementation: Optional[str] = None) -> Dict[str, Any]:
    """Replay a capture on the CPU, through the functions of this package.

    Args:
        path: a file of save_capture, of another writer, or one of the samples.
        implementation: a name of implementations(); None: the one the file names, or the best.

    Returns:
        The results by the names of docs/captures.md, NumPy arrays of their bits: of kv_insert, the
        cache after the call; of a list, list and lens.

    Raises:
        ValueError: the file, or what the call says of it.
        OSError: the file cannot be read.
    """
    tensors, metadata = _read(path)
    op = metadata.get("op", "")
    if op not in _OPS:
        _fail(path, "holds op %r, run_capture knows %s" % (op, ", ".join(_OPS)))
    function, names, attributes = _OPS[op]
    call: Dict[str, Any] = {}
    for name, tensor in tensors.items():
        if name not in names:
            _fail(path, "%s: is no tensor of %s" % (name, op))
        call[name] = tensor
        if name.endswith("cache"):
            prefix = name[:-len("cache")]
            try:
                call[prefix + "page_tokens"] = int(metadata[name + ".page_tokens"])
                call[prefix + "format"] = metadata[name + ".format"]
            except (KeyError, ValueError):
                _fail(path, "%s.format or %s.page_tokens is missing or wrong" % (name, name))
    text = ""
    try:
        for name in attributes:
            if _IN_FILE.get(name, name) in metadata:
                text = metadata[_IN_FILE.get(name, name)]
                call[name] = (text if name in _CHOICES else float(text) if name in _REALS
                              else int(text))
    except ValueError:
        _fail(path, "attribute %s is %r, which is no number" % (name, text))
    if "implementation" in inspect.signature(function).parameters:
        call["implementation"] = implementation or metadata.get("impl")
    return _results(path, op, function, call)


def _results(path: str, op: str, function: Any, call: Dict[str, Any]) -> Dict[str, Any]:
    import numpy

    missing = [p.name for p in inspect.signature(function).parameters.values()
               if p.default is p.empty and p.name not in call and p.name != "n_pages"]
    if missing:
        _fail(path, "%s: is missing" % missing[0])
    if "block_table" in call and op != "kv_gather":
        # The file does not say how large the cache is: as many pages as there can be.
        call["n_pages"] = ((1 << 31) - 1) // max(call["page_tokens"], 1)
    if op in ("window_list", "combined_list") and "valid" not in call:
        call["n_tokens"] = int(call["query_start"][-1])
    if op == "kv_gather":
        call["out"] = numpy.zeros((len(call["seq_lens"]), call.pop("rows"), 512), numpy.uint16)
    result = function(**call)
    if op == "kv_insert":
        return {"cache": call["cache"]}
    if op == "kv_gather":
        return {"rows": result}
    if op in ("project", "compressed_slots"):
        return {"z" if op == "project" else "slots": result}
    if op.startswith("permute"):
        return dict(zip(("weight", "scale"), result))
    named = result._asdict()
    if named.get("out_scale") is not None and call.get("out_form", "fp8_permuted") == "fp8_permuted":
        named["out_scale"] = numpy.ascontiguousarray(named["out_scale"]).view(numpy.uint8)
    return {name: value for name, value in named.items() if value is not None}
