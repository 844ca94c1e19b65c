"""Activation functions evaluated in float64 and rounded once to float32.

Why float64: NumPy's float32 loops are off by up to 2.4 ulp and differ between processors (AVX-512
or not); float64 rounded once is within 0.51 ulp and, but for one argument in many millions, the
same on every host. Blocks that fit the cache make it cheaper than whole-tile float32 formulas.

Invariant: infinities, NaN and signed zeros give the mathematical limit. A function whose formula
meets `inf * 0` clamps its argument where the float32 result is constant already.

Not modelled: the piecewise polynomials of the Scalar Engine, whose tables aren't published; the
one documented exception, sine outside [-pi, pi], is here.

Follows: AWS Neuron SDK, `nki/api/nki.api.shared.rst` ("Supported Activation Functions").
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any, Final

import numpy as np

from nki_dist.ops.function import Function, function

Block = np.ndarray

_BLOCK: Final = 8192
_TAIL: Final = 200.0  # exp(-_TAIL) is far below float32's smallest number, and exp(2*_TAIL) finite
_GELU_TANH_SCALE: Final = sqrt(2 / pi)
_GELU_TANH_CUBIC: Final = 0.044715


def _scipy() -> Any:
    """scipy.special, when it is needed: importing it is an eighth of an actor's start."""
    from scipy import special

    return special


def erf(x: np.ndarray, **options: Any) -> np.ndarray:
    """scipy.special.erf."""
    return _scipy().erf(x, **options)


def direct(ufunc: Callable[..., np.ndarray]) -> Function:
    """A NumPy or SciPy ufunc run in float64; its own cast buffers do the blocking."""

    def apply(x: np.ndarray, out: np.ndarray) -> None:
        ufunc(x, out=out, dtype=np.float64, casting="same_kind")

    return function(reads="x", writes="out", name=f"activation.{ufunc.__name__}")(apply)


def blockwise(kernel: Callable[[Block, Block, Block], Block], name: str = "") -> Function:
    """`kernel(x, s, t)` on float64 blocks: it may overwrite all three and returns the result."""

    def apply(x: np.ndarray, out: np.ndarray) -> None:
        source = x.reshape(-1)
        if source.size == 0:
            return
        in_place = source.ctypes.data == out.ctypes.data and out.flags.c_contiguous
        if not in_place and np.may_share_memory(source, out):
            source = source.copy()
        target = out.reshape(-1) if out.flags.c_contiguous else np.empty(source.size, out.dtype)
        work = np.empty((3, min(_BLOCK, source.size)))
        for start in range(0, source.size, _BLOCK):
            part = source[start : start + _BLOCK]
            block = work[:, : part.size]
            block[0] = part
            target[start : start + _BLOCK] = kernel(block[0], block[1], block[2])
        if not out.flags.c_contiguous:
            np.copyto(out, target.reshape(out.shape))

    return function(reads="x", writes="out", name=f"activation.{name or kernel.__name__}")(apply)


def _sigmoid_of(x: Block, scale: float, out: Block) -> Block:
    """1 / (1 + exp(-scale * x)); the exponential overflows to the right limit."""
    np.multiply(x, -scale, out=out)
    np.exp(out, out=out)
    out += 1.0
    return np.divide(1.0, out, out=out)


def _clamp(x: Block, low: float, high: float = np.inf) -> None:
    """Clip `x` in place; NaN stays.

    Comparing with a scalar is NumPy's slow path, so the clip only runs when something in the block
    needs it (or a NaN hides whether it does). An element inside the bounds is the same either way.
    """
    if not (x.min() >= low and x.max() <= high):
        np.clip(x, low, high, out=x)


def sigmoid(x: Block, s: Block, t: Block) -> Block:
    """1 / (1 + exp(-x))."""
    return _sigmoid_of(x, 1.0, x)


def gated(x: Block, s: Block, t: Block, scale: float) -> Block:
    """x * sigmoid(scale * x); the clamp keeps -inf from meeting 0."""
    _clamp(x, -_TAIL)
    return np.multiply(x, _sigmoid_of(x, scale, s), out=x)


def gated_dx(x: Block, s: Block, t: Block, scale: float) -> Block:
    """Derivative of x * sigmoid(scale * x): g * (1 + scale * x * (1 - g))."""
    _clamp(x, -_TAIL, _TAIL)
    _sigmoid_of(x, scale, s)
    # 1 - g cancels for large x; sigmoid(-scale * x) doesn't.
    _sigmoid_of(x, -scale, t)
    x *= scale
    x *= t
    x += 1.0
    return np.multiply(x, s, out=x)


def gelu_apprx_tanh(x: Block, s: Block, t: Block) -> Block:
    """x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3), as x * sigmoid(2u)."""
    _clamp(x, -_TAIL)
    np.multiply(x, x, out=s)
    s *= _GELU_TANH_CUBIC
    s += 1.0
    s *= x
    return np.multiply(x, _sigmoid_of(s, 2 * _GELU_TANH_SCALE, s), out=x)


def gelu(x: Block, s: Block, t: Block) -> Block:
    """x * Phi(x), Phi the distribution function of the normal distribution."""
    _clamp(x, -_TAIL)
    return np.multiply(x, _scipy().ndtr(x, out=s), out=x)


def gelu_dx(x: Block, s: Block, t: Block) -> Block:
    """Phi(x) + x * phi(x)."""
    _clamp(x, -_TAIL, _TAIL)
    _scipy().ndtr(x, out=s)
    np.multiply(x, x, out=t)
    t *= -0.5
    np.exp(t, out=t)
    t *= 1 / sqrt(2 * pi)
    x *= t
    return np.add(x, s, out=x)


def softplus(x: Block, s: Block, t: Block) -> Block:
    """log(1 + exp(x)), as max(x, 0) + log1p(exp(-|x|))."""
    np.absolute(x, out=s)
    np.negative(s, out=s)
    np.exp(s, out=s)
    np.log1p(s, out=s)
    t.fill(0.0)
    np.maximum(x, t, out=x)
    return np.add(x, s, out=x)


def mish(x: Block, s: Block, t: Block) -> Block:
    """x * tanh(softplus(x)); with e = exp(x) the tangent is e(e + 2) / (e(e + 2) + 2)."""
    _clamp(x, -_TAIL)
    # From 40 on the fraction is 1 in float64; e * e must not overflow.
    t.fill(40.0)
    np.minimum(x, t, out=s)
    np.exp(s, out=s)
    np.add(s, 2.0, out=t)
    s *= t
    np.add(s, 2.0, out=t)
    s /= t
    return np.multiply(x, s, out=x)


def erf_dx(x: Block, s: Block, t: Block) -> Block:
    """2/sqrt(pi) exp(-x^2)."""
    np.multiply(x, x, out=x)
    np.negative(x, out=x)
    np.exp(x, out=x)
    x *= 2 / sqrt(pi)
    return x


def sin(x: Block, s: Block, t: Block) -> Block:
    """Sine over the full domain, from h = tan(x/2) as 2h / (1 + h^2).

    Five times faster than NumPy's float64 sine, and as accurate after rounding to float32: both
    operations keep the relative error of the tangent.
    """
    x *= 0.5
    np.tan(x, out=x)
    np.multiply(x, x, out=s)
    s += 1.0
    x *= 2.0
    return np.divide(x, s, out=x)


def engine_sin(x: Block, s: Block, t: Block) -> Block:
    """Sine as the Scalar Engine has it: no range reduction, a cubic outside [-pi, pi].

    The document says that a cubic goes on outside and that sin(9.0) is about 27.65. The Taylor
    cubic at pi, -(x - pi) + (x - pi)^3 / 6, gives 27.6532; taking the other side by odd symmetry
    is our assumption.
    """
    outside = np.absolute(x) > pi
    if not outside.any():
        return sin(x, s, t)
    beyond = x[outside]
    y = np.absolute(beyond) - pi
    cubic = np.sign(beyond) * y * (y * y / 6.0 - 1.0)
    result = sin(x, s, t)
    result[outside] = cubic
    return result
