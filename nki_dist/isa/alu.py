"""The table of ALU operators (`nl.add`, `nl.maximum`, `nl.bitwise_and`, ...), keyed by name.

Purpose: one row per operator with its meaning on NumPy arrays and the facts instructions check:
arity, kind, engines, which reductions take it. Rounding to the destination's dtype is not done
here.

Invariant: arithmetic is float32 (`f32`), bit operators exist only on integers (`integer`); where
an arithmetic operator has both, `integer` is the exact 32-bit arithmetic of GpSimd.

Open doubts, decided here because the document is silent: integer overflow wraps; integer `mod` and
`fmod` by zero give 0; NaN propagates through maximum and minimum; `right_shift` is logical (the
table of operators says so, the function's NumPy reference would say arithmetic); `divide`, `mod`,
`fmod` and `logical_not` are functions of the language but absent from the table of operators
(`documented` is False), and accepted.

Follows: AWS Neuron SDK, `nki/api/nki.api.shared.rst` ("Supported Math Operators for NKI ISA"),
`nki/api/nki/isa/__init__.py` (which instruction reduces with what).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from nki_dist.errors import invalid
from nki_dist.isa import elementwise as e
from nki_dist.isa.elementwise import Binary
from nki_dist.ops.function import function

Kind = Literal["arith", "compare", "logical", "bitvec"]

_VECTOR: Final = frozenset({"vector"})
_GPSIMD: Final = frozenset({"gpsimd"})
_BOTH: Final = frozenset({"vector", "gpsimd"})
_ALL: Final = frozenset({"vector", "gpsimd", "scalar"})


@dataclass(frozen=True)
class AluOp:
    """One operator.

    Attributes:
        name: as in `nki.language`.
        kind: "bitvec" works on bit patterns of integers; the others compute in float32.
        arity: 2, 1 (the second operand is ignored), or 0 (only a reduction, no element-wise form).
        f32: `f32(a, b, out)` on float32 arrays or scalars; `out` may be an operand. None for
            bitvec.
        integer: `integer(a, b, out)` on integer arrays of one dtype (scalars allowed); None where
            no exact integer form is defined: compute in float32 and convert.
        reducible: the document calls it a legal reduction operator.
        identity: where a reduction starts; None if it doesn't reduce.
        engines: engines that execute it, of "vector", "gpsimd", "scalar"; an instruction may
            allow fewer.
        generation: first NeuronCore generation that has it.
        documented: it is in the document's table of operators.
    """

    name: str
    kind: Kind
    arity: Literal[0, 1, 2]
    f32: Binary
    integer: Binary | None = None
    reducible: bool = False
    identity: float | None = None
    engines: frozenset[str] = _BOTH
    generation: int = 2
    documented: bool = True

    @property
    def is_bitvec(self) -> bool:
        """Whether it takes integers only and never converts them."""
        return self.kind == "bitvec"


@function(reads="a b", writes="out", raises=True, name="alu.no f32")
def _no_f32(a: object, b: object, out: object) -> None:
    message = "a bitwise operator has no float32 form: its operands are integers"
    raise invalid(message, code="operator-dtype")


@function(reads="a b", writes="out", raises=True, name="alu.not elementwise")
def _no_elementwise(a: object, b: object, out: object) -> None:
    message = "average is a reduction: it has no element-wise form"
    raise invalid(message, code="operator-not-elementwise")


def _bits(
    name: str, function: Binary, *, arity: Literal[1, 2] = 2, identity: int | None = None
) -> AluOp:
    reducible = identity is not None
    return AluOp(name, "bitvec", arity, _no_f32, function, reducible, identity, engines=_VECTOR)


_INF: Final = float("inf")


def _rows() -> Iterable[AluOp]:
    """All operators but the second names of some."""
    yield AluOp("add", "arith", 2, np.add, np.add, True, 0.0, _ALL)
    yield AluOp("subtract", "arith", 2, np.subtract, np.subtract, True, 0.0)
    yield AluOp("multiply", "arith", 2, np.multiply, np.multiply, True, 1.0, _ALL)
    yield AluOp("divide", "arith", 2, np.divide, documented=False)
    yield AluOp("maximum", "arith", 2, e.maximum, e.maximum, True, -_INF)
    yield AluOp("minimum", "arith", 2, e.minimum, e.minimum, True, _INF)
    yield AluOp("power", "arith", 2, e.power, engines=_GPSIMD)
    yield AluOp("mod", "arith", 2, np.remainder, np.remainder, documented=False)
    yield AluOp("fmod", "arith", 2, np.fmod, np.fmod, documented=False)
    # A tie between x and -x returns the second operand.
    for name, single, exact, start in (
        ("abs_max", e.abs_max, e.integer_abs_max, 0.0),
        ("abs_min", e.abs_min, e.integer_abs_min, _INF),
    ):
        yield AluOp(name, "arith", 2, single, exact, identity=start, engines=_ALL, generation=4)
    yield AluOp("average", "arith", 0, _no_elementwise, identity=0.0, engines=_GPSIMD)
    yield AluOp("bypass", "arith", 1, e.bypass, e.bypass, engines=_ALL)
    yield AluOp("abs", "arith", 1, e.absolute, e.absolute)
    yield AluOp("square", "arith", 1, e.square, e.square, generation=4)
    yield AluOp("relu", "arith", 1, e.relu, e.relu, generation=4)
    yield AluOp("rsqrt", "arith", 1, e.rsqrt, engines=_GPSIMD)
    yield AluOp("reciprocal", "arith", 1, e.reciprocal)
    for compare in (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal):
        yield AluOp(compare.__name__, "compare", 2, compare, compare)
    for name, logical, start in (
        ("logical_and", e.logical_and, 1.0),
        ("logical_or", e.logical_or, 0.0),
        ("logical_xor", e.logical_xor, 0.0),
    ):
        yield AluOp(name, "logical", 2, logical, logical, True, start)
    yield AluOp("logical_not", "logical", 1, e.logical_not, e.logical_not, documented=False)
    yield _bits("bitwise_and", e.bitwise_and, identity=-1)
    yield _bits("bitwise_or", e.bitwise_or, identity=0)
    yield _bits("bitwise_xor", e.bitwise_xor, identity=0)
    yield _bits("invert", e.invert, arity=1)
    yield _bits("left_shift", e.left_shift)
    yield _bits("right_shift", e.right_shift)


# `nl.max` and `nl.min` are reductions of the language that published kernels pass as operators.
_SECOND_NAMES: Final = MappingProxyType({"max": "maximum", "min": "minimum"})


def _table() -> dict[str, AluOp]:
    table = {op.name: op for op in _rows()}
    table.update({second: table[first] for second, first in _SECOND_NAMES.items()})
    return table


ALU: Final[Mapping[str, AluOp]] = MappingProxyType(_table())


def _names(*first: str) -> frozenset[str]:
    """These operators under all the names they have in the table."""
    return frozenset(name for name, op in ALU.items() if op.name in first)


# Which operators each reduction takes.
TENSOR_REDUCE: Final = frozenset(name for name, op in ALU.items() if op.reducible)
PARTITION_REDUCE: Final = _names("add", "average", "maximum", "bitwise_or", "bitwise_and")
CUMULATIVE: Final = _names("add", "subtract", "multiply", "maximum", "minimum")
TENSOR_SCALAR_REDUCE: Final = _names("add", "multiply", "maximum", "minimum")
ACTIVATION_REDUCE: Final = _names("add")
ACTIVATE2_REDUCE: Final = _names("add", "maximum", "minimum", "abs_max", "abs_min")
SELECT_REDUCE: Final = _names("maximum")
DMA_REDUCE: Final = _names("add")
COLLECTIVE_REDUCE: Final = _names("add", "maximum", "minimum")
COMPARE: Final = frozenset(name for name, op in ALU.items() if op.kind == "compare")
