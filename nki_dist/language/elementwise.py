"""Functions element by element: `nl.add(x, y)`, `nl.exp(x)`, ..., also operators (`op=nl.add`).

A call on tiles allocates a tile in SBUF and emits the instruction that fills it. Two operands
broadcast to each other as in NumPy; one of them may be a number. The result has the tile's dtype
unless `dtype` says otherwise; tiles of different dtypes give the dtype that `emit.promoted` says
(the documentation gives no rule). Computation is float32, rounded once, as for the instructions;
meaning and accuracy are those of the rows in `isa.alu` and `isa.activations`. Comparisons and logic
give 1 or 0. Bit operators take integers only and never convert them.

`sin`, `cos`, `tan`, `ceil`, `floor`, `trunc` have no instruction of their own in the documentation;
they are the pseudo-instruction `isa.language_math`, exact, at an assumed cost.

Follows: `nki/api/nki/language/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki_dist.language import emit
from nki_dist.language.tokens import token


def _of_one(name: str, doc: str) -> Callable[..., Any]:
    """A function of one tile."""

    def function(x, dtype=None):
        return emit.unary(name, x, dtype)

    return _named(function, name, doc)


def _of_two(name: str, doc: str) -> Callable[..., Any]:
    """A function of two tiles, or a tile and a number."""

    def function(x, y, dtype=None):
        return emit.public_binary(name, x, y, dtype)

    return _named(function, name, doc)


def _named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return token(name)(function)


# ---- arithmetic ----------------------------------------------------------------------------------

add = _of_two("add", "x + y.")
subtract = _of_two("subtract", "x - y.")
multiply = _of_two("multiply", "x * y.")
divide = _of_two("divide", "x / y.")
maximum = _of_two("maximum", "The larger of x and y; NaN if either is.")
minimum = _of_two("minimum", "The smaller of x and y; NaN if either is.")
abs_max = _of_two(
    "abs_max",
    "Whichever of x and y has the larger magnitude, with its sign; y on a tie (NeuronCore-v4).",
)
abs_min = _of_two(
    "abs_min",
    "Whichever of x and y has the smaller magnitude, with its sign; y on a tie (NeuronCore-v4).",
)
power = _of_two("power", "x to the power of y.")
fmod = _of_two("fmod", "Remainder of x / y with the sign of x.")
mod = _of_two("mod", "Remainder of x / y with the sign of y, as Python's `%`.")
abs = _of_one("abs", "The absolute value of x.")
square = _of_one("square", "x * x.")
sign = _of_one("sign", "-1, 0 or 1, by the sign of x.")
sqrt = _of_one("sqrt", "Square root of x.")
rsqrt = _of_one("rsqrt", "1 / sqrt(x).")
ceil = _of_one("ceil", "Least integer not below x.")
floor = _of_one("floor", "Greatest integer not above x.")
trunc = _of_one("trunc", "x without its fraction.")
sin = _of_one("sin", "Sine of x; as an operator of nisa.activation, the engine's, for `|x| <= pi`.")
cos = _of_one("cos", "Cosine of x.")
tan = _of_one("tan", "Tangent of x.")
reciprocal = _of_one("reciprocal", "1 / x.")
copy = _of_one("copy", "A new tile in SBUF with the values of `x`, a tile in SBUF or PSUM.")

# ---- comparisons, bits and logic -----------------------------------------------------------------

equal = _of_two("equal", "1 where x == y, else 0.")
not_equal = _of_two("not_equal", "1 where x != y, else 0.")
less = _of_two("less", "1 where x < y, else 0.")
less_equal = _of_two("less_equal", "1 where x <= y, else 0.")
greater = _of_two("greater", "1 where x > y, else 0.")
greater_equal = _of_two("greater_equal", "1 where x >= y, else 0.")
bitwise_and = _of_two("bitwise_and", "Bits set in both x and y.")
bitwise_or = _of_two("bitwise_or", "Bits set in x or y.")
bitwise_xor = _of_two("bitwise_xor", "Bits set in one of x and y.")
left_shift = _of_two("left_shift", "x shifted left by y bits.")
right_shift = _of_two("right_shift", "x shifted right by y bits; zeros come in.")
logical_and = _of_two("logical_and", "1 where x and y are nonzero, else 0.")
logical_or = _of_two("logical_or", "1 where x or y is nonzero, else 0.")
logical_xor = _of_two("logical_xor", "1 where exactly one of x and y is nonzero, else 0.")

# ---- functions of the Scalar engine --------------------------------------------------------------

exp = _of_one("exp", "e to the power of x.")
log = _of_one("log", "Natural logarithm of x.")
tanh = _of_one("tanh", "Hyperbolic tangent of x.")
sigmoid = _of_one("sigmoid", "1 / (1 + exp(-x)).")
relu = _of_one("relu", "x where positive, else 0.")
gelu = _of_one("gelu", "x * Phi(x), Phi the distribution function of the normal distribution.")
gelu_apprx_sigmoid = _of_one("gelu_apprx_sigmoid", "gelu approximated as x * sigmoid(1.702 x).")
gelu_apprx_tanh = _of_one("gelu_apprx_tanh", "gelu approximated with tanh.")
gelu_dx = _of_one("gelu_dx", "Derivative of gelu.")
gelu_apprx_sigmoid_dx = _of_one("gelu_apprx_sigmoid_dx", "Derivative of gelu_apprx_sigmoid.")
silu = _of_one("silu", "x * sigmoid(x).")
silu_dx = _of_one("silu_dx", "Derivative of silu.")
softplus = _of_one("softplus", "log(1 + exp(x)).")
mish = _of_one("mish", "x * tanh(softplus(x)).")
erf = _of_one("erf", "Error function of x.")
erf_dx = _of_one("erf_dx", "Derivative of erf.")
arctan = _of_one("arctan", "Inverse tangent of x.")


@token("negative")
def negative(x, dtype=None):
    """-x."""
    return emit.with_number("multiply", x, -1.0, False, dtype)


@token("invert")
def invert(x, dtype=None):
    """Every bit of x flipped."""
    return emit.invert(x, dtype)


@token("logical_not")
def logical_not(x, dtype=None):
    """1 where x is 0, else 0."""
    return emit.with_number("logical_xor", x, 1.0, False, dtype)


__all__ = [name for name, value in list(globals().items()) if hasattr(value, "nki_op")]
