"""Python operators on tiles: each is a function of the language, giving a new tile.

What they become is up to the trace's `lowering`, because lowering makes tiles itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki_dist.compat.beta1.state import state


def _binary(function: str, reverse: bool = False) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        x, y = (other, self) if reverse else (self, other)
        return state().lowering.binary(function, x, y)

    return operator


def _in_place(function: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: state().lowering.in_place(function, self, other)


class Operators:
    """What a tile and a tensor with block dimensions have in common."""

    __slots__ = ()
    __array_ufunc__ = None  # a NumPy scalar on the left leaves the operator to us
    __hash__ = object.__hash__

    __add__ = _binary("add")
    __radd__ = _binary("add", reverse=True)
    __sub__ = _binary("subtract")
    __rsub__ = _binary("subtract", reverse=True)
    __mul__ = _binary("multiply")
    __rmul__ = _binary("multiply", reverse=True)
    __truediv__ = _binary("divide")
    __rtruediv__ = _binary("divide", reverse=True)
    __pow__ = _binary("power")
    __mod__ = _binary("mod")
    __and__ = _binary("bitwise_and")
    __or__ = _binary("bitwise_or")
    __xor__ = _binary("bitwise_xor")
    __lshift__ = _binary("left_shift")
    __rshift__ = _binary("right_shift")
    __lt__ = _binary("less")
    __le__ = _binary("less_equal")
    __gt__ = _binary("greater")
    __ge__ = _binary("greater_equal")
    __eq__ = _binary("equal")
    __ne__ = _binary("not_equal")

    def __neg__(self) -> Any:
        return self * -1.0

    __iadd__ = _in_place("add")
    __isub__ = _in_place("subtract")
    __imul__ = _in_place("multiply")
    __itruediv__ = _in_place("divide")

    def __setitem__(self: Any, key: Any, value: Any) -> None:
        state().lowering.assign(self[key], value)
