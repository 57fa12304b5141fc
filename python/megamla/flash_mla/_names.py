"""Errors in the names of this module: its arguments are called otherwise than the library's."""

import functools
from typing import Any, Callable, Dict


def renamed(names: Dict[str, str]) -> Callable[[Any], Any]:
    """A decorator: "list: has ..." becomes "indices: has ..." in what a function raises."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except ValueError as error:
                name, colon, rest = str(error).partition(":")
                if name not in names:
                    raise
                raise ValueError(names[name] + colon + rest) from error

        return call

    return decorate


def must_be(name: str, value: Any, wanted: Any) -> None:
    """An argument that has one legal value."""
    if type(value) in (bool, int) and value == wanted:
        return
    raise ValueError("%s: is %r, must be %r" % (name, value, wanted))


def without_head(indices: Any, name: str) -> Any:
    """[tokens, 1, k] or [tokens, k] as the latter."""
    shape = tuple(getattr(indices, "shape", ()))
    if len(shape) == 3:
        if shape[1] != 1:
            raise ValueError("%s: has %d in dimension 1, must have 1, the one KV head"
                             % (name, shape[1]))
        return indices[:, 0]
    return indices
