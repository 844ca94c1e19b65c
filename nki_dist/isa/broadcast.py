"""Numbers and (P, 1) tiles as operands: rules for them, and operators applied with them.

Invariant: a Python number becomes one float32 (or one integer for bitwise operators) when the
instruction is linked, so results don't depend on Python's double precision.

Follows: AWS Neuron SDK, `nki/api/nki/isa/__init__.py` (tensor_scalar and its relatives).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nki_dist.dtypes import DType, float32
from nki_dist.errors import invalid
from nki_dist.isa.alu import ALU, AluOp
from nki_dist.isa.checks import check_unpacked, rule, scalar_or_column
from nki_dist.isa.kit import Array, Kit, Wrap
from nki_dist.isa.spec import Access, Arch, Instruction, may_reject, require_generation
from nki_dist.ops.operation import Operation, is_array, op, share_memory

ELEMENTWISE = frozenset(name for name, op in ALU.items() if op.arity != 0)
ARITHMETIC = frozenset(name for name in ELEMENTWISE if not ALU[name].is_bitvec)
ARITHMETIC_BINARY = frozenset(name for name in ARITHMETIC if ALU[name].arity == 2)

# NumPy compares against a row 3 times faster than against a scalar.
_FASTER_WITH_ROWS = ("maximum", "minimum")


@rule
def operand(i: Instruction, arch: Arch, names: tuple[str, ...], operator: str, of: str) -> None:
    """Operands fit their operator: for a binary one numbers, or tiles of one element for each
    partition of another operand; none for a unary one."""
    op = i[operator]
    for name in names:
        value, partitions = i[name], i[of].shape[0]
        if op is None:
            if value is not None:
                message = f"{name} is given, {operator} is None; allowed: both or none"
                raise invalid(message, code="argument-combination")
        elif ALU[op].arity == 1:
            if isinstance(value, Access) or value not in (None, 0):
                message = f"{name}={value!r} for the unary nl.{op}; allowed: None or 0"
                raise invalid(message, code="argument-combination")
        elif value is None:
            message = f"{name} is None; allowed with nl.{op}: a number or a ({partitions}, 1) tile"
            raise invalid(message, code="operand-missing", allowed=(partitions, 1))
        else:
            scalar_or_column(name, value, partitions)


@rule
def operator_dtypes(i: Instruction, arch: Arch, names: tuple[str, ...], operators: str) -> None:
    """Bitwise operators take integers, tiles of one width; others anything but packed types."""
    op = next((name for name in (i[n] for n in operators.split()) if name is not None), None)
    if op is None or not ALU[op].is_bitvec:
        check_unpacked(i, arch, names)
        return
    widths: dict[str, Any] = {}
    for name in names:
        value = i[name]
        if isinstance(value, Access):
            if not value.dtype.is_integer:
                message = (
                    f"{name} has dtype {value.dtype}; the bitwise operator nl.{op} takes integer "
                    "types and converts nothing"
                )
                raise invalid(message, code="operator-dtype", got=value.dtype)
            widths[name] = value.dtype
        elif value is not None and value != int(value):
            message = f"{name}={value!r}; the bitwise nl.{op} takes whole numbers"
            raise invalid(message, code="argument-kind", got=value)
    if len({dtype.bits for dtype in widths.values()}) > 1:
        message = (
            f"the bitwise nl.{op} moves bit patterns, so its tiles need one width: got "
            + ", ".join(f"{name} {dtype}" for name, dtype in widths.items())
        )
        raise invalid(message, code="dtype-width", **widths)


@rule
def available(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """The operators exist on this platform and this engine."""
    for name in [i[n] for n in names if i[n] is not None]:
        require_generation(arch, ALU[name].generation, f"nl.{name}")
        if not ALU[name].documented and ALU[name].arity == 2:
            may_reject(
                f"nl.{name} isn't among the operators of AWS's table, and its release notes say "
                "that it works in simulation only",
                code="operator-without-instruction",
            )
        if i.engine not in ALU[name].engines:
            message = f"nl.{name} on the {i.engine} engine; allowed: " + ", ".join(
                sorted(ALU[name].engines)
            )
            raise invalid(message, code="operator-engine")


def as_dtype(a: Access, dtype: DType) -> Access:
    """The same bits read as another type of the same width."""
    if a.dtype is dtype:
        return a
    return Access(a.storage, a.offset, a.shape, a.strides, dtype, a.dynamic)


def single(value: Any) -> np.float32:
    """A number as the engines get it."""
    with np.errstate(all="ignore"):
        return np.float32(value)


def apply(alu: AluOp, a: Any, b: Any, out: Array, reverse: bool = False) -> Operation:
    """`out = a alu b` in float32, of bitwise operators on integers (`b alu a` if reversed).

    `b` is ignored by unary operators.
    """
    function = alu.integer if alu.is_bitvec else alu.f32
    assert function is not None
    if alu.arity == 1:
        return op(function, a, None, out)
    if not is_array(b) and alu.name in _FASTER_WITH_ROWS:
        b = np.full(out.shape[-1:], b, np.float32)
    return op(function, b, a, out) if reverse else op(function, a, b, out)


class Stage(NamedTuple):
    """One operator of several that an instruction applies, and its operand besides the data.

    Attributes:
        operand: a number or a tile; not looked at if the operator is unary.
        reverse: the operand is the left side.
    """

    alu: AluOp
    operand: Any
    reverse: bool = False


def stages(i: Instruction, operand: str = "operand") -> list[Stage]:
    """The operators op0 and op1 of an instruction that aren't left out."""
    return [
        Stage(ALU[i["op" + n]], i[operand + n], i["reverse" + n])
        for n in "01"
        if i["op" + n] is not None
    ]


def through_operators(i: Instruction, kit: Kit) -> list[Operation]:
    """The meaning of instructions that take data through op0 and op1, and no more."""
    work = staged(kit, i["dst"], i["data"], *stages(i))
    return work.wrap(*work.ops)


class Staged(NamedTuple):
    """What takes data through operators.

    Attributes:
        x: what the last operator gives; the data itself where there are none.
        out: where the instruction's result goes; `x` may be it.
        ops: the operators' operations.
        around: `around(*ops)` is the instruction: conversions in, these, conversion out.
        later: the operand that is read afterwards.
    """

    x: Array
    out: Array
    ops: list[Operation]
    wrap: Wrap
    later: Any


def staged(kit: Kit, dst: Access, data: Access, *stages: Stage, later: Any = None) -> Staged:
    """Take data through operators one after the other: in float32, or all of them bitwise.

    Args:
        later: a further number or tile, for what the instruction does with the result.
    """
    bitwise = any(stage.alu.is_bitvec for stage in stages)
    dtype = data.dtype if bitwise else float32
    operands = [s.operand if s.alu.arity == 2 else None for s in stages] + [later]
    tiles = [dst, data, *(v for v in operands if isinstance(v, Access))]
    if bitwise:  # the widths are equal, and nothing converts
        tiles = [as_dtype(a, dtype) for a in tiles]
    out, arrays, wrap = kit.elementwise(tiles[0], tiles[1:], dtype)
    x, rest = arrays[0], iter(arrays[1:])
    given: list[Any] = []
    for value in operands:
        if isinstance(value, Access):
            given.append(next(rest))
        else:
            given.append(value if value is None else int(value) if bitwise else single(value))
    ops: list[Operation] = []
    for n, stage in enumerate(stages):
        # Not to `out` while operands that live there are still to be read.
        meets = any(share_memory(out, a) for a in given[n + 1 :])
        into = kit.scratch(out.shape, out.dtype) if meets else out
        ops.append(apply(stage.alu, x, given[n], into, stage.reverse))
        x = into
    return Staged(x, out, ops, wrap, given[-1])
