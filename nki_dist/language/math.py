"""Arithmetic of the language: `nl.add(x, y)`, `nl.exp(x)`, ..., also operators (`op=nl.add`).

A call on tiles allocates a tile in SBUF and emits the instruction that fills it. Two operands
broadcast to each other as in NumPy; one of them may be a number. The result has the tile's dtype
unless `dtype` says otherwise; tiles of different dtypes give the dtype that `emit.promoted` says
(the documentation gives no rule). Computation is float32, rounded once, as for the instructions.

`sin`, `cos`, `tan`, `ceil`, `floor`, `trunc` have no instruction of their own in the documentation;
they are the pseudo-instruction `isa.language_math`, exact, at an assumed cost.

Follows: `nki/api/nki/language/__init__.py`.
"""

from __future__ import annotations

from nki_dist.language import emit
from nki_dist.language.tokens import token


@token("add")
def add(x, y, dtype=None):
    """x + y."""
    return emit.public_binary("add", x, y, dtype)


@token("subtract")
def subtract(x, y, dtype=None):
    """x - y."""
    return emit.public_binary("subtract", x, y, dtype)


@token("multiply")
def multiply(x, y, dtype=None):
    """x * y."""
    return emit.public_binary("multiply", x, y, dtype)


@token("divide")
def divide(x, y, dtype=None):
    """x / y."""
    return emit.public_binary("divide", x, y, dtype)


@token("maximum")
def maximum(x, y, dtype=None):
    """The larger of x and y; NaN if either is."""
    return emit.public_binary("maximum", x, y, dtype)


@token("minimum")
def minimum(x, y, dtype=None):
    """The smaller of x and y; NaN if either is."""
    return emit.public_binary("minimum", x, y, dtype)


@token("abs_max")
def abs_max(x, y, dtype=None):
    """Whichever of x and y has the larger magnitude, with its sign; y on a tie (NeuronCore-v4)."""
    return emit.public_binary("abs_max", x, y, dtype)


@token("abs_min")
def abs_min(x, y, dtype=None):
    """Whichever of x and y has the smaller magnitude, with its sign; y on a tie (NeuronCore-v4)."""
    return emit.public_binary("abs_min", x, y, dtype)


@token("power")
def power(x, y, dtype=None):
    """x to the power of y."""
    return emit.public_binary("power", x, y, dtype)


@token("fmod")
def fmod(x, y, dtype=None):
    """Remainder of x / y with the sign of x."""
    return emit.public_binary("fmod", x, y, dtype)


@token("mod")
def mod(x, y, dtype=None):
    """Remainder of x / y with the sign of y, as Python's `%`."""
    return emit.public_binary("mod", x, y, dtype)


@token("abs")
def abs(x, dtype=None):
    """The absolute value of x."""
    return emit.activate("abs", x, dtype)


@token("square")
def square(x, dtype=None):
    """x * x."""
    return emit.activate("square", x, dtype)


@token("sign")
def sign(x, dtype=None):
    """-1, 0 or 1, by the sign of x."""
    return emit.activate("sign", x, dtype)


@token("reciprocal")
def reciprocal(x, dtype=None):
    """1 / x."""
    return emit.reciprocal(x, dtype)


@token("sqrt")
def sqrt(x, dtype=None):
    """Square root of x."""
    return emit.activate("sqrt", x, dtype)


@token("rsqrt")
def rsqrt(x, dtype=None):
    """1 / sqrt(x)."""
    return emit.activate("rsqrt", x, dtype)


@token("negative")
def negative(x, dtype=None):
    """-x."""
    return emit.with_number("multiply", x, -1.0, False, dtype)


@token("copy")
def copy(x, dtype=None):
    """A new tile in SBUF with the values of `x`, a tile in SBUF or PSUM."""
    return emit.copy(x, dtype)


@token("ceil")
def ceil(x, dtype=None):
    """Least integer not below x."""
    return emit.evaluate("ceil", x, dtype)


@token("floor")
def floor(x, dtype=None):
    """Greatest integer not above x."""
    return emit.evaluate("floor", x, dtype)


@token("trunc")
def trunc(x, dtype=None):
    """x without its fraction."""
    return emit.evaluate("trunc", x, dtype)


@token("sin")
def sin(x, dtype=None):
    """Sine of x; as an operator of nisa.activation, the engine's, for `|x| <= pi`."""
    return emit.evaluate("sin", x, dtype)


@token("cos")
def cos(x, dtype=None):
    """Cosine of x."""
    return emit.evaluate("cos", x, dtype)


@token("tan")
def tan(x, dtype=None):
    """Tangent of x."""
    return emit.evaluate("tan", x, dtype)
