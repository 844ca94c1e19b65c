"""nisa.tensor_tensor and scalar_tensor_tensor: operators between tiles, element by element."""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import bfloat16, float32, int32, uint32
from nki_dist.isa import broadcast as b
from nki_dist.isa.alu import ALU
from nki_dist.isa.checks import not_in_psum, one_in_psum, same_tile, unpacked
from nki_dist.isa.effects import Effects, elementwise
from nki_dist.isa.enums import engine
from nki_dist.isa.operands import FLAG, Op, read, write
from nki_dist.isa.spec import Arch, Cost, Instruction, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import issue_cycles, pair_cycles
from nki_dist.ops.arrays import cast
from nki_dist.ops.function import copy

BINARY = frozenset(name for name, op in ALU.items() if op.arity == 2)
_WRAPPING = ("add", "subtract", "multiply")  # the same bits, signed or not
_FAST = ("add", "multiply", "subtract")


def _integer(i: Instruction) -> bool:
    """Whether the operands make it exact integer arithmetic."""
    kinds = (int32, uint32)
    return i["data1"].dtype in kinds and i["data2"].dtype in kinds and i["dst"].dtype in kinds


def _in_psum(i: Instruction) -> bool:
    return any(i[n].region.value == "psum" for n in ("dst", "data1", "data2"))


def default_engine(i: Instruction, arch: Arch) -> str:
    """GpSimd for power and for exact 32-bit integer arithmetic in SBUF, Vector otherwise."""
    if i["op"] == "power":
        return "gpsimd"
    arithmetic = ALU[i["op"]].kind != "bitvec"
    return "gpsimd" if arithmetic and _integer(i) and not _in_psum(i) else "vector"


@instruction(
    engines="vector gpsimd",
    effects=Effects(elementwise("data1 data2"), partial=False, bits=None, state=None),
    default_engine=default_engine,
    checks=[
        same_tile("dst data1 data2"),
        one_in_psum("data1 data2"),
        not_in_psum("dst data1 data2"),
        b.available("op"),
        b.operator_dtypes("dst data1 data2", "op"),
    ],
)
def tensor_tensor(
    dst=write(indirect=16),
    data1=read(indirect=16),
    data2=read(),
    op=Op(BINARY),
    engine=engine.unknown,
    name=None,
):
    """`dst = data1 op data2`, element by element.

    Args:
        dst: tile (P, ...) in SBUF or PSUM.
        data1, data2: tiles with the same partitions and elements per partition; at most one of
            them in PSUM.
        op: a binary operator of `nl`. Bitwise operators take integer types only and never convert.
        engine: vector or gpsimd; by default gpsimd for power and for 32-bit integer arithmetic
            (exact), vector otherwise.

    Arithmetic is done in float32 and rounded once to `dst.dtype`, except between int32/uint32
    tiles on GpSimd, which stays in integers.

    Raises:
        NkiValidationError: element counts, dtypes or memories don't fit.
    """
    return locals()


@tensor_tensor.meaning
def _tensor_tensor_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    alu = ALU[i["op"]]
    exact = alu.integer is not None and _integer(i) and i.engine == "gpsimd"
    if alu.is_bitvec or exact:
        return _on_integers(i, kit)
    out, (x, y), wrap = kit.elementwise(i["dst"], [i["data1"], i["data2"]], float32)
    return wrap(b.apply(alu, x, y, out))


def _on_integers(i: Instruction, kit: Kit) -> list[Operation]:
    """Bit patterns, or 32-bit arithmetic that wraps."""
    alu, dtype = ALU[i["op"]], i["data1"].dtype
    assert alu.integer is not None
    tiles = [i[n] for n in ("dst", "data1", "data2")]
    equal = i["data2"].dtype is dtype
    if equal or alu.is_bitvec or alu.name in _WRAPPING:
        dst, *srcs = [b.as_dtype(a, dtype) for a in tiles]
        out, (x, y), wrap = kit.elementwise(dst, srcs, dtype)
        return wrap(op(alu.integer, x, y, out))
    # One signed, one unsigned: their values meet in 64 bits.
    rows = (tiles[0].shape[0], tiles[0].free_size)
    x, y, out = (kit.scratch(rows, np.int64) for _ in range(3))
    into, *views = [kit.view(a) for a in tiles]
    return [
        op(copy, x.reshape(views[0].shape), views[0]),
        op(copy, y.reshape(views[1].shape), views[1]),
        op(alu.integer, x, y, out),
        op(cast, into, out.reshape(into.shape)),
    ]


@tensor_tensor.cost
def _tensor_tensor_cost(i: Instruction, arch: Arch) -> Cost:
    n, flops = i["dst"].free_size, i["dst"].size
    tiles = (i["dst"], i["data1"], i["data2"])
    if i.engine == "gpsimd":
        # A2: it reads 32 bits of a partition per cycle, so two tiles take twice as long.
        return Cost(cycles=arch.gpsimd_start + 2 * n, flops=flops, known=False)
    cycles = pair_cycles(*tiles, arch)
    if i["op"] in _FAST and all(t.dtype.bits == 16 for t in tiles):
        cycles = min(n, cycles)
    return Cost(cycles=issue_cycles(cycles, arch), flops=flops)


@instruction(
    former=("dtype",),
    engines="vector",
    effects=Effects(elementwise("data operand0 operand1"), partial=False, bits=None, state=None),
    checks=[
        same_tile("dst data operand1"),
        one_in_psum("data operand1"),
        b.operand("operand0", "op0", "data"),
        unpacked("dst data operand0 operand1"),
        b.available("op0 op1"),
    ],
)
def scalar_tensor_tensor(
    dst=write(),
    data=read(),
    op0=Op(b.ARITHMETIC),
    operand0=read(scalar=True, optional=True),
    op1=Op(b.ARITHMETIC_BINARY),
    operand1=read(),
    reverse0=FLAG.default(False),
    reverse1=FLAG.default(False),
    name=None,
):
    """`dst = (data op0 operand0) op1 operand1` with a broadcast operand0 and a full operand1.

    Args:
        dst, data, operand1: tiles with the same partitions and elements per partition; data and
            operand1 not both in PSUM.
        op0, op1: arithmetic operators; op0 may be unary.
        operand0: a number or a (P, 1) tile; None or 0 if op0 is unary.
        reverse0, reverse1: the operand is the left side.

    Computed in float32 and rounded once to `dst.dtype`.

    Raises:
        NkiValidationError: shapes, dtypes, memories or operators don't fit.
    """
    return locals()


scalar_tensor_tensor.meaning(b.through_operators)


@scalar_tensor_tensor.cost
def _scalar_tensor_tensor_cost(i: Instruction, arch: Arch) -> Cost:
    n = i["dst"].free_size
    both = i["data"].dtype is bfloat16 and i["operand1"].dtype is bfloat16
    fast = both and i["op0"] == "subtract" and i["op1"] == "multiply" and n % 2 == 0
    return Cost(
        cycles=issue_cycles(n if fast else 2 * n / arch.vector_width, arch), flops=2 * i["dst"].size
    )
