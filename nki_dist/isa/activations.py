"""The table of activation functions of the Scalar Engine, keyed by name, and the language's maths.

Purpose: one row per function with its float32 meaning. `ACTIVATIONS` are
the tokens that `nisa.activation(op=...)` takes; `MATH` are unary functions of `nki.language` that
are no tokens, or mean something else there (`nl.sin` reduces its argument, the engine's doesn't).

Invariant: within 2 ulp of the mathematical function on the whole float32 domain (0.51 for those
evaluated in float64, see `_special`), inputs outside the documented range included: there hardware
results are invalid, ours are still the function's, except for sine, whose behaviour is documented.
Like the ALU operators, functions set no errstate: the executor does.

Not modelled: the engine's approximation error.

Follows: AWS Neuron SDK, `nki/api/nki.api.shared.rst` ("Supported Activation Functions").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from nki_dist.errors import invalid
from nki_dist.isa import elementwise as e
from nki_dist.isa import special_functions as s
from nki_dist.ops.function import Function, function

Unary: TypeAlias = "Function | np.ufunc"


@dataclass(frozen=True)
class Activation:
    """One function.

    Attributes:
        name: as in `nki.language`.
        f32: `f32(x, out)` on float32 arrays of one shape; `out` may be `x`. Functions with
            `takes_param` get a scalar or broadcastable array more.
        takes_param: it reads `param` (`relu_param` of activate2; 0.0 by default).
        generation: first NeuronCore generation that has it.
    """

    name: str
    f32: Unary
    takes_param: bool = False
    generation: int = 2


def _unary(operator: Function) -> Function:
    """An ALU operator of one operand as a function of this table."""

    def apply(x: np.ndarray, out: np.ndarray) -> None:
        operator.call(x, None, out)

    name = operator.name.removeprefix("alu.")
    return function(reads="x", writes="out", name=f"activation.{name}")(apply)


@function(reads="x param", writes="out", name="activation.prelu")
def _prelu(x: np.ndarray, out: np.ndarray, param: Any = None) -> None:
    """x where x >= 0, else param * x."""
    slope = np.float32(0) if param is None else np.asarray(param, dtype=np.float32)
    negative = np.minimum(x, np.float32(0))
    # With slope 0 it is relu, so -inf must not meet the 0: the clamp keeps NaN but no infinity.
    negative = np.where(slope == 0, np.maximum(negative, np.float32(-1)), negative)
    np.copyto(out, np.where(x >= 0, x, negative * slope))


def _rows() -> Iterable[Activation]:
    for name, operator in (
        ("copy", e.bypass),
        ("square", e.square),
        ("relu", e.relu),
        ("rsqrt", e.rsqrt),
        ("reciprocal", e.reciprocal),
        ("abs", e.absolute),
    ):
        yield Activation(name, _unary(operator))
    for kernel in (s.gelu, s.gelu_dx, s.gelu_apprx_tanh, s.sigmoid, s.softplus, s.mish, s.erf_dx):
        yield Activation(kernel.__name__, s.blockwise(kernel))
    for gate, scale in (("silu", 1.0), ("gelu_apprx_sigmoid", 1.702)):
        for name, form in ((gate, s.gated), (f"{gate}_dx", s.gated_dx)):
            yield Activation(name, s.blockwise(partial(form, scale=scale), name))
    for ufunc in (np.tanh, s.erf, np.exp, np.log, np.arctan):
        yield Activation(ufunc.__name__, s.direct(ufunc))
    # The engine's sine is defined outside [-pi, pi] too: see `engine_sin`.
    yield Activation("sin", s.blockwise(s.engine_sin))
    yield Activation("prelu", _prelu, takes_param=True, generation=4)
    yield Activation("sqrt", np.sqrt)
    yield Activation("sign", np.sign)


def _math_rows() -> Iterable[Activation]:
    yield Activation("sin", s.blockwise(s.sin))
    for ufunc in (np.cos, np.tan):
        yield Activation(ufunc.__name__, s.direct(ufunc))
    for exact in (np.ceil, np.floor, np.trunc, np.negative):
        yield Activation(exact.__name__, exact)


ACTIVATIONS: Final[Mapping[str, Activation]] = MappingProxyType({a.name: a for a in _rows()})
MATH: Final[Mapping[str, Activation]] = MappingProxyType({a.name: a for a in _math_rows()})

# The Scalar engine loads tables by sets of functions. A published list of a program's sets names
# `natural_log_exp_and_others`, `reciprocal_sqrt_and_small`, `reciprocal_and_small` and
# `gelu_and_others` (work-with-neff-files.rst): log and exp share one, and each brings the small
# functions, taken to be those without a curve. Of the rest, each is assumed to have its own.
_NO_TABLE: Final = frozenset({"copy", "identity", "square", "relu", "prelu", "abs", "sign"})
_SETS: Final = MappingProxyType({"exp": "log and exp", "log": "log and exp"})

# NumPy functions that Beta 1 kernels pass as activation, where the name differs.
_NUMPY_NAMES: Final = MappingProxyType({"absolute": "abs", "positive": "copy"})


def table(name: str) -> str:
    """The set of tables that an activation function needs, or "" if every set has it."""
    return "" if name in _NO_TABLE else _SETS.get(name, name)


def activation(name: str) -> Activation:
    """The activation function of that name, or of the NumPy function with the same meaning.

    Raises:
        NkiValidationError: there is none.
    """
    found = ACTIVATIONS.get(name) or ACTIVATIONS.get(_NUMPY_NAMES.get(name, ""))
    if found is None:
        names = ", ".join(sorted(ACTIVATIONS))
        message = f"{name!r} is no activation function; there are {names}"
        raise invalid(message, code="operator-unknown")
    return found
