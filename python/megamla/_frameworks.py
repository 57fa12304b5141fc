"""What differs between the frameworks that tensors come from: making results, streams, waiting.

The library reads and writes tensors of any framework through DLPack. Only results that the caller
did not provide have to be made here, with the framework of the first tensor, and on a GPU the work
has to be ordered with the framework's own. No framework is imported: a tensor of it is proof that
the user did so.
"""

import sys
from typing import Any, Dict, Optional, Sequence, Tuple

from ._native import bind_fast

Tensor = Any  # of any framework with __dlpack__

# What a result holds, in the names that NumPy, CuPy and JAX have, then in PyTorch's. The first have no
# bf16 and no fp8 of their own: results are bits.
_BITS = {"bf16": "uint16", "e4m3": "uint8", "ue8m0": "uint8", "f32": "float32", "i32": "int32",
         "i64": "int64", "u8": "uint8"}
_TORCH = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "ue8m0": "uint8", "f32": "float32",
          "i32": "int32", "i64": "int64", "u8": "uint8"}
_JAX = dict(_BITS, bf16="bfloat16", e4m3="float8_e4m3fn")

_OUT_ALIGNMENT = 64  # the library asks for 32
_GROUP_WORDS = 32


def _padded(n: int) -> int:
    return (n + 3) // 4 * 4


class Framework:
    """A framework we know nothing of: its tensors can be read, but none can be made."""

    deferred = False  # results exist only after `leave`
    fast_paged = fast_rows = fast_insert = None  # of bind_fast

    def empty(self, like: Tensor, shape: Sequence[int], kind: str) -> Tensor:
        if not hasattr(like, "__dlpack__"):
            raise ValueError("%s is not a tensor (an array with __dlpack__)" % type(like).__name__)
        raise ValueError("out: results must be given: cannot make a %s.%s"
                         % (type(like).__module__, type(like).__name__))

    def packed_scales(self, like: Tensor, t: int, groups: int) -> Tensor:
        """Scale words [t, groups, 32], token stride 1, the next word 4-aligned tokens further."""
        n = _padded(t)
        planes = self.empty(like, (groups, _GROUP_WORDS, n), "i32")
        return planes.transpose(2, 0, 1)[:t]

    def planes(self, like: Tensor, t: int, groups: int) -> Tensor:
        """What the library is given to write packed scales to."""
        return self.packed_scales(like, t, groups)

    def scales(self, planes: Tensor, t: int) -> Tensor:
        """The result that stands for it."""
        return planes

    def no_rotation(self, like: Tensor, t: int) -> Tuple[Tensor, Tensor]:
        """A table whose one row turns by nothing, and t positions that lead to it. New each time: what
        is made while a CUDA graph is recorded has to be made again by its replay."""
        table, positions = self.empty(like, (1, 64), "f32"), self.empty(like, (t,), "i32")
        table[:] = 0
        table[:, :32] = 1
        positions[:] = 0
        return table, positions

    def contiguous(self, tensor: Tensor) -> Tensor:
        """The same tensor, or a copy in the order of its indices."""
        return sys.modules[type(tensor).__module__.partition(".")[0]].ascontiguousarray(tensor)

    def repeat(self, tensor: Tensor, times: int, axis: int) -> Tensor:
        """Each element as often as `times`, along an axis."""
        return tensor.repeat(times, axis)

    def as_bytes(self, words: Tensor) -> Tensor:
        """int32 [..., n] as uint8 [..., 4 n]."""
        return words.view("uint8")

    def as_words(self, data: Tensor) -> Tensor:
        """uint8 [..., 4 n] as int32 [..., n]."""
        return data.view("int32")

    def enter(self, like: Tensor, tensors: Sequence[Any]) -> Optional[int]:
        """Before a call: the stream to use; None: the one that tvm-ffi finds, or the CPU."""
        return None

    def leave(self, like: Tensor) -> None:
        """After a call."""


class _NumPy(Framework):
    def empty(self, like, shape, kind):
        np = sys.modules["numpy"]
        dtype = np.dtype(_BITS[kind])
        count = 1
        for n in shape:
            count *= int(n)
        memory = np.empty(count * dtype.itemsize + _OUT_ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % _OUT_ALIGNMENT
        return memory[start:start + count * dtype.itemsize].view(dtype).reshape(shape)


class _Torch(Framework):
    def __init__(self) -> None:
        torch = sys.modules["torch"]
        self._torch = torch
        self._dtypes = {kind: getattr(torch, name, torch.uint8) for kind, name in _TORCH.items()}
        # Without this protocol (PyTorch before 2.10) tvm-ffi may not learn the current stream.
        self._tells_stream = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
        self.fast_paged = bind_fast("attend_paged", torch.Tensor)
        self.fast_rows = bind_fast("attend_rows", torch.Tensor)
        self.fast_insert = bind_fast("kv_insert", torch.Tensor)

    def empty(self, like, shape, kind):
        return self._torch.empty(tuple(shape), dtype=self._dtypes[kind], device=like.device)

    def packed_scales(self, like, t, groups):
        n = _padded(t)
        return self._torch.empty_strided((t, groups, _GROUP_WORDS), (1, _GROUP_WORDS * n, n),
                                         dtype=self._torch.int32, device=like.device)

    def contiguous(self, tensor):
        return tensor.contiguous()

    def repeat(self, tensor, times, axis):
        return tensor.repeat_interleave(times, axis)

    def as_bytes(self, words):
        return words.view(self._torch.uint8)

    def as_words(self, data):
        return data.view(self._torch.int32)

    def enter(self, like, tensors):
        if self._tells_stream or not like.is_cuda:
            return None
        return self._torch.cuda.current_stream(like.device).cuda_stream


class _CuPy(Framework):
    def empty(self, like, shape, kind):
        cupy = sys.modules["cupy"]
        with like.device:
            return cupy.empty(tuple(shape), _BITS[kind])

    def enter(self, like, tensors):
        with like.device:
            return sys.modules["cupy"].cuda.get_current_stream().ptr


class _Jax(Framework):
    """JAX orders work by data flow, which writing into a buffer is no part of: so everything that is
    read is waited for, and so is the result."""

    deferred = True

    def empty(self, like, shape, kind):
        jnp = sys.modules["jax"].numpy
        return jnp.empty(tuple(shape), getattr(jnp, _JAX[kind]), device=like.device)

    def no_rotation(self, like, t):
        jnp = sys.modules["jax"].numpy
        table = jnp.zeros((1, 64), jnp.float32, device=like.device).at[:, :32].set(1)
        return table, jnp.zeros((t,), jnp.int32, device=like.device)

    def contiguous(self, tensor):
        return tensor

    def planes(self, like, t, groups):
        return self.empty(like, (1, groups, _GROUP_WORDS, _padded(t)), "i32")

    def scales(self, planes, t):
        return planes[0].transpose(2, 0, 1)[:t]

    def enter(self, like, tensors):
        sys.modules["jax"].block_until_ready([t for t in tensors if hasattr(t, "__dlpack__")])
        return None if like.device.platform == "cpu" else 0

    def leave(self, like):
        if like.device.platform != "cpu":
            from ._cuda_driver import synchronize

            synchronize(like.device.local_hardware_id)


_MAKERS = {"numpy": _NumPy, "torch": _Torch, "cupy": _CuPy, "jax": _Jax, "jaxlib": _Jax}
_made: Dict[str, Framework] = {}
_of_type: Dict[type, Framework] = {}


def framework_of(tensor: Tensor) -> Framework:
    """The framework of a tensor's type; found once a type."""
    kind = type(tensor)
    found = _of_type.get(kind)
    if found is None:
        for base in kind.__mro__:
            name = base.__module__.partition(".")[0]
            if name in _MAKERS and hasattr(kind, "__dlpack__"):
                found = _made.setdefault(name, _MAKERS[name]())
                break
        else:
            found = Framework()
        _of_type[kind] = found
    return found


def shape_of(tensor: Tensor, name: str, ndim: int) -> Tuple[int, ...]:
    """The shape of a tensor that results are made for; the library checks everything else."""
    shape = getattr(tensor, "shape", None)
    if shape is None or not hasattr(tensor, "__dlpack__"):
        raise ValueError("%s: is not a tensor (an array with __dlpack__)" % name)
    if len(shape) != ndim:
        raise ValueError("%s: has %d dimensions, must have %d" % (name, len(shape), ndim))
    return tuple(shape)


def choose(table: Dict[str, int], name: str, value: Any) -> int:
    """The number of a choice that is given by name."""
    found = table.get(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("%s: is %r, must be one of %s" % (name, value, ", ".join(table)))
    return found


def run(framework: Framework, like: Tensor, function: Any, args: tuple, workspace: Optional[int],
        stream: int) -> None:
    """Call a function of the library. workspace and stream are places in args, the former None when
    the function has none: what is None there is found here."""
    if args[stream] is None:
        found = framework.enter(like, args)
        if found is not None:
            args = args[:stream] + (found,) + args[stream + 1:]
    needed = function(*args)
    if needed is not None and workspace is not None:  # tvm-ffi knows no allocator of this framework
        memory = framework.empty(like, (needed,), "u8")
        function(*args[:workspace], memory, *args[workspace + 1:])
    if framework.deferred:
        framework.leave(like)
