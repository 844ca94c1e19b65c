"""NumPy meaning of the ALU operators, one small function each.

Every function is called `f(a, b, out)` and writes `out`; a unary one ignores `b`. Operands are
arrays that broadcast to `out`, or Python/NumPy scalars; `out` may be one of the operands. The
float32 functions compute in float32 and round once. The integer ones keep the operands' dtype and
wrap modulo 2**width.

Operators that are NumPy's own functions aren't here: its remainder has the sign of `b`, fmod that
of `a`, and both are NaN for `b == 0`.

Not modelled: exception flags. Functions raise no error and set no errstate; the executor holds
`np.errstate(all="ignore")` around a whole program, because setting it here would cost as much as a
small instruction.

Follows: AWS Neuron SDK, `nki/api/nki.api.shared.rst` ("Supported Math Operators for NKI ISA") and
the operator functions of `nki/api/nki/language/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from nki_dist.ops.function import Function, function

Binary: TypeAlias = "Function | np.ufunc"
Elementwise = Callable[[Any, Any, np.ndarray], Any]


def _alu(call: Elementwise, name: str = "") -> Function:
    return function(reads="a b", writes="out", name=f"alu.{name or call.__name__}")(call)


def _single(value: Any) -> Any:
    """A Python float would compare and convert in double precision; the engines see float32."""
    return np.float32(value) if isinstance(value, (int, float)) else value


def _unsigned(value: Any, out: np.ndarray) -> Any:
    """The bits of `value` as an unsigned integer; Python ints take the width of `out`, wrapped."""
    if isinstance(value, np.ndarray):
        return value.view(f"u{value.dtype.itemsize}")
    width = out.dtype.itemsize
    return np.array(int(value) & ((1 << 8 * width) - 1), dtype=f"u{width}")


# ---- arithmetic ----------------------------------------------------------------------------


@_alu
def maximum(a: Any, b: Any, out: np.ndarray) -> None:
    """Larger operand; NaN if either is NaN. NumPy's own doesn't take `out` by position."""
    np.maximum(a, b, out=out)


@_alu
def minimum(a: Any, b: Any, out: np.ndarray) -> None:
    """Smaller operand; NaN if either is NaN."""
    np.minimum(a, b, out=out)


@_alu
def power(a: Any, b: Any, out: np.ndarray) -> None:
    """`a ** b`, computed in float64 and rounded; NaN for a negative base and a fractional exponent.

    The float64 loop runs through NumPy's own cast buffers: five times faster than float32's.
    """
    np.power(_single(a), _single(b), out=out, dtype=np.float64, casting="same_kind")


def _by_absolute(name: str, compare: np.ufunc) -> Function:
    """`a` where its magnitude compares so with that of `b`: ties and any NaN give `b`, as the rule
    is written."""

    def apply(a: Any, b: Any, out: np.ndarray) -> None:
        a, b = _single(a), _single(b)
        np.copyto(out, np.where(compare(np.absolute(a), np.absolute(b)), a, b))

    return _alu(apply, name)


abs_max = _by_absolute("abs_max", np.greater)
abs_min = _by_absolute("abs_min", np.less)


@_alu
def bypass(a: Any, b: Any, out: np.ndarray) -> None:
    """The first operand, unchanged."""
    np.copyto(out, a)


@_alu
def absolute(a: Any, b: Any, out: np.ndarray) -> None:
    """|a|; an integer without a positive counterpart stays as it is."""
    np.absolute(a, out=out)


@_alu
def square(a: Any, b: Any, out: np.ndarray) -> None:
    """a * a."""
    np.multiply(a, a, out=out)


@_alu
def relu(a: Any, b: Any, out: np.ndarray) -> None:
    """max(a, 0); NaN stays NaN. Zeros as a row: NumPy is 3 times slower against a scalar."""
    np.maximum(a, np.zeros(out.shape[-1:], dtype=out.dtype), out=out)


@_alu
def rsqrt(a: Any, b: Any, out: np.ndarray) -> None:
    """1 / sqrt(a) from the two exactly rounded operations: within 1.5 ulp on every host."""
    np.sqrt(_single(a), out=out)
    np.divide(np.float32(1), out, out=out)


@_alu
def reciprocal(a: Any, b: Any, out: np.ndarray) -> None:
    """1 / a, exactly rounded; signed infinity for a zero."""
    np.divide(np.float32(1), a, out=out)


# ---- logic (any non-zero value, NaN included, is true; results are 1 and 0) ------------------


def _logical(name: str, join: np.ufunc) -> Function:
    """Two comparisons and a bitwise operator are four times faster than the logical ufunc."""

    def apply(a: Any, b: Any, out: np.ndarray) -> None:
        np.copyto(out, join(np.not_equal(a, 0), np.not_equal(b, 0)))

    return _alu(apply, name)


logical_and = _logical("logical_and", np.bitwise_and)
logical_or = _logical("logical_or", np.bitwise_or)
logical_xor = _logical("logical_xor", np.bitwise_xor)


@_alu
def logical_not(a: Any, b: Any, out: np.ndarray) -> None:
    """1 where `a` is 0. The document defines 0 and 1 only, where this equals `a` xor 1."""
    np.equal(a, 0, out=out)


# ---- integers ------------------------------------------------------------------------------


def _by_magnitude(name: str, compare: np.ufunc) -> Function:
    """As `_by_absolute`; magnitudes are compared unsigned so that the lowest integer is the
    largest."""

    def apply(a: Any, b: Any, out: np.ndarray) -> None:
        a, b = np.asarray(a, dtype=out.dtype), np.asarray(b, dtype=out.dtype)
        chosen = compare(_unsigned(np.absolute(a), out), _unsigned(np.absolute(b), out))
        np.copyto(out, np.where(chosen, a, b))

    return _alu(apply, name)


integer_abs_max = _by_magnitude("integer_abs_max", np.greater)
integer_abs_min = _by_magnitude("integer_abs_min", np.less)


def _bitwise(ufunc: np.ufunc) -> Function:
    def apply(a: Any, b: Any, out: np.ndarray) -> None:
        ufunc(_unsigned(a, out), _unsigned(b, out), out=_unsigned(out, out), casting="unsafe")

    return _alu(apply, ufunc.__name__)


bitwise_and = _bitwise(np.bitwise_and)
bitwise_or = _bitwise(np.bitwise_or)
bitwise_xor = _bitwise(np.bitwise_xor)

# Logical shifts on bit patterns: an amount that isn't below the width shifts everything out, and a
# negative amount, read as unsigned, is such an amount.
left_shift = _bitwise(np.left_shift)
right_shift = _bitwise(np.right_shift)


@_alu
def invert(a: Any, b: Any, out: np.ndarray) -> None:
    """All bits flipped."""
    np.invert(_unsigned(a, out), out=_unsigned(out, out), casting="unsafe")
