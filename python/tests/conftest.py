"""The frameworks that the tests run on, and the closing line that counts.

A test that takes `fw` runs once on each framework; one that is not installed, or has no GPU here, is
skipped and says so. Arrays of a test are made in NumPy and moved with put(), results come back as
NumPy bits with get().
"""

import importlib.util

import numpy as np
import pytest


class NumPyTensors:
    name, device = "numpy", "cpu"

    def put(self, array, kind=None):
        """A copy, since a call may write what a test still compares with. kind "bf16" and "e4m3" name
        what the bits are, where the framework has such a dtype."""
        return np.array(array, order="C")

    def get(self, tensor):
        return np.asarray(tensor)

    def __repr__(self):
        return self.name


class TorchTensors(NumPyTensors):
    def __init__(self, device):
        import torch

        self.torch, self.device, self.name = torch, device, "torch-" + device

    def put(self, array, kind=None):
        array = np.array(array, order="C")
        if kind == "bf16":
            array = array.view(np.int16)
        tensor = self.torch.from_numpy(array).to(self.device)
        if kind == "bf16":
            return tensor.view(self.torch.bfloat16)
        return tensor.view(self.torch.float8_e4m3fn) if kind == "e4m3" else tensor

    def get(self, tensor):
        if tensor.dtype == self.torch.bfloat16:
            return tensor.view(self.torch.int16).cpu().numpy().view(np.uint16)
        if tensor.dtype == self.torch.float8_e4m3fn:
            tensor = tensor.view(self.torch.uint8)
        return tensor.cpu().numpy()


class CuPyTensors(NumPyTensors):
    name, device = "cupy-cuda", "cuda"

    def __init__(self):
        import cupy

        self.cupy = cupy

    def put(self, array, kind=None):
        return self.cupy.asarray(np.ascontiguousarray(array))

    def get(self, tensor):
        return self.cupy.asnumpy(tensor)


class JaxTensors(NumPyTensors):
    def __init__(self, device):
        import jax

        jax.config.update("jax_enable_x64", True)  # int64 positions
        self.jax, self.device, self.name = jax, device, "jax-" + device

    def put(self, array, kind=None):
        import ml_dtypes

        array = np.array(array, order="C")
        if kind is not None:
            array = array.view(ml_dtypes.bfloat16 if kind == "bf16" else ml_dtypes.float8_e4m3fn)
        return self.jax.device_put(array, self.jax.devices(self.device)[0])

    def get(self, tensor):
        array = np.asarray(tensor)
        bits = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8}.get(array.dtype.name)
        return array if bits is None else array.view(bits)


def _torch(device):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU here")
    return TorchTensors(device)


def _cupy():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("CuPy sees no GPU here")
    return CuPyTensors()


def _jax(device):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    try:
        jax.devices(device)
    except RuntimeError:
        pytest.skip("JAX sees no %s here" % device)
    return JaxTensors(device)


def _library_has_cuda():
    import megamla

    return bool(megamla.supports(8, device="cuda"))


MAKERS = {"numpy": NumPyTensors, "torch-cpu": lambda: _torch("cpu"), "jax-cpu": lambda: _jax("cpu"),
          "torch-cuda": lambda: _torch("cuda"), "cupy-cuda": _cupy, "jax-cuda": lambda: _jax("cuda")}
_made = {}


def make_framework(name):
    if name not in _made:
        if name.endswith("cuda") and not _library_has_cuda():
            pytest.skip("the library has no CUDA device here")
        _made[name] = MAKERS[name]()
    return _made[name]


@pytest.fixture(params=list(MAKERS))
def fw(request):
    """Each framework, on the CPU and on a GPU."""
    return make_framework(request.param)


@pytest.fixture(params=[name for name in MAKERS if not name.endswith("cuda")])
def cpu_fw(request):
    """Each framework on the CPU, whose bits and errors are certain."""
    return make_framework(request.param)


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def installed(name):
    return importlib.util.find_spec(name) is not None


def pytest_terminal_summary(terminalreporter):
    """The line that .ci/run reads."""
    count = {key: len(terminalreporter.stats.get(key, ())) for key in
             ("passed", "failed", "error", "skipped")}
    terminalreporter.write_line("")
    terminalreporter.write_line("%d passed, %d failed, %d skipped" % (
        count["passed"], count["failed"] + count["error"], count["skipped"]))
