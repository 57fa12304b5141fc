"""safetensors_file.py - reading and writing safetensors with the standard library, for the tests."""

import json
import struct


def write(path, header, data=b"", n=None):
    """`header` is a dict or raw bytes; n overrides the length field."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text) if n is None else n) + text + data)


def tensors(spec, meta):
    """[(name, dtype, shape, bytes)] -> header and data."""
    header, data = {"__metadata__": meta}, b""
    for name, dtype, shape, raw in spec:
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    return header, data


def read(path):
    """-> metadata, {name: (dtype, shape, bytes)}"""
    with open(path, "rb") as file:
        raw = file.read()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    data = raw[8 + n:]
    meta = header.pop("__metadata__", {})
    return meta, {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
                  for name, t in header.items()}
