"""Waiting for a GPU without a framework that would know how: the driver's own library by ctypes."""

import ctypes
from typing import Any, Optional

_driver: Optional[Any] = None


def _check(status: int, what: str) -> None:
    if status != 0:
        raise RuntimeError("%s: the CUDA driver returned %d" % (what, status))


def synchronize(device: int) -> None:
    """Wait for everything that was enqueued on a device. Leaves the current context as it was."""
    global _driver
    if _driver is None:
        _driver = ctypes.CDLL("libcuda.so.1")
        _check(_driver.cuInit(0), "cuInit")
    context = ctypes.c_void_p()
    handle = ctypes.c_int()
    _check(_driver.cuDeviceGet(ctypes.byref(handle), device), "cuDeviceGet")
    _check(_driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), "cuDevicePrimaryCtxRetain")
    try:
        _check(_driver.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent")
        try:
            _check(_driver.cuCtxSynchronize(), "cuCtxSynchronize")
        finally:
            _driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    finally:
        _driver.cuDevicePrimaryCtxRelease_v2(handle)
