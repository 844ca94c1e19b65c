"""nisa.tensor_tensor: an operator applied to two tiles, element by element."""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import float32, int32, uint32
from nki_dist.isa import broadcast as b
from nki_dist.isa.alu import ALU
from nki_dist.isa.checks import not_in_psum, one_in_psum, same_tile
from nki_dist.isa.effects import Effects, elementwise
from nki_dist.isa.enums import engine
from nki_dist.isa.operands import Op, read, write
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
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
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
def _cost(i: Instruction, arch: Arch) -> Cost:
    n, flops = i["dst"].free_size, i["dst"].size
    tiles = (i["dst"], i["data1"], i["data2"])
    if i.engine == "gpsimd":
        # A2: it reads 32 bits of a partition per cycle, so two tiles take twice as long.
        return Cost(cycles=arch.gpsimd_start + 2 * n, flops=flops, known=False)
    cycles = pair_cycles(*tiles, arch)
    if i["op"] in _FAST and all(t.dtype.bits == 16 for t in tiles):
        cycles = min(n, cycles)
    return Cost(cycles=issue_cycles(cycles, arch), flops=flops)
