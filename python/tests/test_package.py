"""The package as a whole: what importing it does, versions, sizes, what is supported."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import megamla

ROOT = Path(__file__).resolve().parents[2]


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.strip()


def test_import_brings_no_framework():
    code = """
import sys, megamla
assert megamla.kv_bytes("v4") == 584                 # the library is loaded
print([n for n in ("torch", "numpy", "jax", "cupy") if n in sys.modules])
import numpy                                         # and the user may still import his own
print(megamla.rope_table(2, ratio=0).shape)
"""
    assert python(code) == "[]\n(2, 64)"


def test_a_framework_imported_later_is_understood(torch):
    code = """
import megamla
megamla.kv_bytes("v4")
import torch
q = torch.ones(2, 8, 512, dtype=torch.bfloat16)
print(megamla.q_to_fused(q).dtype)
"""
    assert python(code) == "torch.bfloat16"


def test_version_comes_from_the_header():
    text = (ROOT / "include" / "megamla" / "version.h").read_text()
    version = re.search(r'MMLA_VERSION_STRING "([0-9.]+)"', text).group(1)
    assert megamla.__version__ == version
    from importlib.metadata import PackageNotFoundError, version as installed_version
    try:
        assert installed_version("megamla") == version
    except PackageNotFoundError:
        pytest.skip("the package is not installed from a wheel")


def test_everything_public_has_a_docstring_and_hints():
    for name in megamla.__all__:
        thing = getattr(megamla, name)
        assert thing.__doc__ and len(thing.__doc__) > 40, name
        if callable(thing) and not isinstance(thing, type):
            hints = thing.__annotations__
            assert "return" in hints, name
    with pytest.raises(AttributeError):
        megamla.nothing


@pytest.mark.parametrize("format, record, page64", [
    ("v4", 584, 37440), ("v41_fp8", 528, 33792), ("v41_fp4", 288, 18432), ("index_fp8", 132, 8448),
    ("index_fp4", 68, 4352)])
def test_kv_bytes(format, record, page64):
    assert megamla.kv_bytes(format) == record
    assert megamla.kv_bytes(format, 64) == page64
    assert megamla.kv_bytes(format, 64, 10) == 10 * page64


def test_kv_bytes_names_what_is_wrong():
    with pytest.raises(ValueError, match="^format: is 'v5', must be one of v4, "):
        megamla.kv_bytes("v5")
    for tokens in (0, -1, 65537):
        with pytest.raises(ValueError, match="^page_tokens: is "):
            megamla.kv_bytes("v4", tokens)


def test_supports_says_yes_or_why_not():
    assert megamla.supports(64) and megamla.supports(8, "v4", "v4", q_norm=True, out_form="bf16")
    assert megamla.supports(128, kind="rows")
    assert not megamla.supports(12)
    assert megamla.supports(12).reason == "n_heads: is 12, must be a multiple of 8, 8 .. 128"
    assert "v41_fp4" in megamla.supports(64, "v4", "v41_fp4").reason
    assert megamla.supports(64, implementation="abacus").reason
    assert "Support(no: " in repr(megamla.supports(0)) and repr(megamla.supports(8)) == "Support(yes)"
    for wrong in (dict(device="tpu"), dict(device="cuda:x"), dict(kind="x"), dict(out_form="x"),
                  dict(window_format="x"), dict(compressed_format="x")):
        with pytest.raises(ValueError, match="^%s: is " % next(iter(wrong))):
            megamla.supports(64, **wrong)


def test_implementations_of_the_cpu():
    found = megamla.implementations()
    assert {"attend", "kv_insert", "project"} <= {i.op for i in found}
    assert all(i.available or i.reason for i in found)
    assert any(i.by_name_only for i in found if i.name == "reference")


def test_set_threads_names_what_is_wrong():
    for n in (-1, 4097, "x"):
        with pytest.raises(ValueError, match="^n_threads: is "):
            megamla.set_threads(n)


def test_numpy_bits_need_no_copy():
    """A result is written where the caller's memory is."""
    x = np.zeros((4, 64), np.float32)
    megamla.rope_table(ratio=0, out=x)
    assert x[0, 0] == 1.0
