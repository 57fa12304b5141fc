"""The library's functions, loaded when the first of them is called.

Importing the package costs next to nothing, and by the time of the first call the user has imported
the framework that the tensors come from. tvm-ffi, which carries the calls, imports PyTorch and NumPy
itself wherever they are installed; here they are hidden from it unless they were imported already,
because a program without PyTorch should not wait seconds for it. Tensors of a framework that is
imported later are understood all the same, by the protocols that their types carry.
"""

import os
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence

_BINDING = "megamla_binding.so"
_FRAMEWORKS = ("torch", "numpy", "ml_dtypes")  # the last imports NumPy, and complains without it
_lock = threading.RLock()


def _import_tvm_ffi() -> Any:
    if "tvm_ffi" in sys.modules:
        return sys.modules["tvm_ffi"]
    hidden = [name for name in _FRAMEWORKS if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # makes its import fail
    try:
        import tvm_ffi
    finally:
        for name in hidden:
            if sys.modules.get(name) is None:
                sys.modules.pop(name, None)
    return tvm_ffi


def library_folder() -> str:
    """The folder of the package's shared libraries."""
    beside = os.path.dirname(os.path.abspath(__file__))
    # An editable install leaves them where packages go, and these files in the checkout.
    for place in [beside] + [os.path.join(path, "megamla") for path in sys.path]:
        folder = os.path.join(place, "lib")
        if os.path.exists(os.path.join(folder, _BINDING)):
            return folder
    raise ImportError("megamla was not built: %s is not in %s" % (_BINDING, os.path.join(beside, "lib")))


class _Native:
    """native.attend_paged(...): an attribute a function, bound at its first use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        with _lock:
            bind = self.__dict__.get("_bind")
            if bind is None:
                tvm_ffi = _import_tvm_ffi()
                path = os.path.join(library_folder(), _BINDING)
                # The functions hold the code they need; the module is kept so that it stays loaded.
                self.__dict__["_module"] = tvm_ffi.load_module(path)
                bind = self.__dict__["_module"]["open"]()
                self.__dict__["_bind"] = bind
            function = bind(name)
            self.__dict__[name] = function
            return function


native = _Native()


# Of CPython, in the order of python_abi in python/src/binding_fast.c.
_PYTHON_OBJECTS = (None, ValueError, RuntimeError, MemoryError)
_PYTHON_FUNCTIONS = ("PyTuple_New", "PyTuple_SetItem", "PyObject_IsInstance", "PyLong_AsLongLong",
                     "PyFloat_AsDouble", "PyDict_GetItemWithError", "PyObject_CallObject",
                     "PyErr_Occurred", "PyErr_Clear", "PyErr_SetString", "PyEval_SaveThread",
                     "PyEval_RestoreThread", "Py_IncRef", "Py_DecRef")
_kept: List[Any] = []  # what functions of bind_fast know the address of


def bind_fast(name: str, tensor_type: type, otherwise: Optional[Callable[..., Any]] = None,
              choices: Sequence[Dict[str, int]] = ({}, {})) -> Optional[Any]:
    """A function in C that reads tensors of this type where they are (python/src/binding_fast.c), and
    calls `otherwise` with arguments that it does not take; None when the type cannot show tensors."""
    capsule = getattr(tensor_type, "__dlpack_c_exchange_api__", None)
    one_lock = getattr(sys, "_is_gil_enabled", lambda: True)
    if capsule is None or sys.implementation.name != "cpython" or not one_lock():
        return None
    import ctypes

    api, number, any_object = ctypes.pythonapi, ctypes.c_void_p, ctypes.py_object
    pointer = ctypes.PYFUNCTYPE(number, any_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    make = ctypes.PYFUNCTYPE(any_object, number, number, number)(("PyCFunction_NewEx", api))
    try:
        exchange = pointer(capsule, b"dlpack_exchange_api")
        functions = [ctypes.cast(getattr(api, f), number).value for f in _PYTHON_FUNCTIONS]
        python = (number * (len(_PYTHON_OBJECTS) + len(functions)))(
            *map(id, _PYTHON_OBJECTS), *functions)
    except (AttributeError, ValueError, TypeError):
        return None
    call = native.bind_fast(name, exchange, id(tensor_type), id(object), id(otherwise),
                            *map(id, choices), ctypes.addressof(python), ctypes.sizeof(python))
    if call is None:
        return None
    _kept.append((tensor_type, otherwise, choices))
    # The method lies in the object behind its head, which is as long as that of any other.
    return make(call + object.__basicsize__, call, None)
