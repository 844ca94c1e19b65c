"""Python operators on tiles: each is a function of the language, giving a new tile."""

from __future__ import annotations

import sys
from typing import Any, Final


class _Probe:
    """Counts references to the right side of `+=` as `Operators.__iadd__` sees them."""

    def __iadd__(self, other: Any) -> Any:
        references = sys.getrefcount(other)
        return references  # noqa: RET504 -- counted as in Operators.__iadd__


def _references_of_a_temporary() -> int:
    probe: Any = _Probe()
    probe += _Probe()
    return probe


# A value with more references than this has a name, and may be used again.
_TEMPORARY: Final = _references_of_a_temporary()


class Operators:
    """What a tile and a tensor with block dimensions have in common."""

    __slots__ = ()
    __array_ufunc__ = None  # a NumPy scalar on the left leaves the operator to us
    __hash__ = object.__hash__

    def _binary(self, function: str, other: Any, reverse: bool = False) -> Any:
        from nki_dist.compat.beta1 import lower

        x, y = (other, self) if reverse else (self, other)
        return lower.binary(function, x, y)

    def __add__(self, other: Any) -> Any:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("add", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._binary("subtract", other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("subtract", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._binary("multiply", other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("multiply", other, True)

    def __truediv__(self, other: Any) -> Any:
        return self._binary("divide", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary("divide", other, True)

    def __pow__(self, other: Any) -> Any:
        return self._binary("power", other)

    def __mod__(self, other: Any) -> Any:
        return self._binary("mod", other)

    def __and__(self, other: Any) -> Any:
        return self._binary("bitwise_and", other)

    def __or__(self, other: Any) -> Any:
        return self._binary("bitwise_or", other)

    def __xor__(self, other: Any) -> Any:
        return self._binary("bitwise_xor", other)

    def __lshift__(self, other: Any) -> Any:
        return self._binary("left_shift", other)

    def __rshift__(self, other: Any) -> Any:
        return self._binary("right_shift", other)

    def __neg__(self) -> Any:
        return self._binary("multiply", -1.0)

    def __lt__(self, other: Any) -> Any:
        return self._binary("less", other)

    def __le__(self, other: Any) -> Any:
        return self._binary("less_equal", other)

    def __gt__(self, other: Any) -> Any:
        return self._binary("greater", other)

    def __ge__(self, other: Any) -> Any:
        return self._binary("greater_equal", other)

    def __eq__(self, other: Any) -> Any:
        return self._binary("equal", other)

    def __ne__(self, other: Any) -> Any:
        return self._binary("not_equal", other)

    def _in_place(self, function: str, other: Any, temporary: bool = False) -> Any:
        from nki_dist.compat.beta1 import lower

        return lower.in_place(function, self, other, temporary)

    def __iadd__(self, other: Any) -> Any:
        references = sys.getrefcount(other)
        return self._in_place("add", other, references <= _TEMPORARY)

    def __isub__(self, other: Any) -> Any:
        return self._in_place("subtract", other)

    def __imul__(self, other: Any) -> Any:
        return self._in_place("multiply", other)

    def __itruediv__(self, other: Any) -> Any:
        return self._in_place("divide", other)
