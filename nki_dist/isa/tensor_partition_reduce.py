"""nisa.tensor_partition_reduce: reduces across partitions on GpSimd."""

from __future__ import annotations

import numpy as np

from nki_dist.arch import Arch
from nki_dist.dtypes import float32
from nki_dist.errors import NkiValidationError
from nki_dist.isa import broadcast as b
from nki_dist.isa.alu import ALU, PARTITION_REDUCE
from nki_dist.isa.checks import not_in_psum, same_free_size
from nki_dist.isa.effects import Effects, MaskOf, Results, flattened, passes_on, union
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import Op, read, write
from nki_dist.isa.rows import load_rows, save_rows
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import on_gpsimd
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction


@passes_on
def _reduced(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """Each result is the union of one column."""
    m = mask_of(i.args[sources[0]])
    return {} if m is None else {"dst": union(flattened(m), 0)}


def _one_row(i: Instruction, arch: Arch) -> None:
    if i["dst"].shape[0] != 1:
        raise NkiValidationError(
            f"dst has {i['dst'].shape[0]} partitions; allowed: 1",
            code="operand-shape",
            numbers={"got": i["dst"].shape[0], "allowed": 1},
        )


@instruction(
    engines="gpsimd",
    effects=Effects(_reduced("data"), partial=False, bits=None, state=None),
    checks=[
        _one_row,
        same_free_size("dst data"),
        not_in_psum("dst data"),
        b.operator_dtypes("dst data", "op"),
    ],
    cost=on_gpsimd("data", flops=1, known=False),
)
def tensor_partition_reduce(dst=write(), op=Op(PARTITION_REDUCE), data=read(), name=None):
    """`dst = op over the partitions of data`: one partition remains.

    Args:
        dst: tile (1, ...) in SBUF with data's number of elements per partition.
        op: add, average, maximum, bitwise_or or bitwise_and (the last two on integers).
        data: tile in SBUF.

    Arithmetic is float32, from the first partition to the last, rounded once to `dst.dtype`. The
    order on hardware isn't documented.

    Raises:
        NkiValidationError: shapes, dtypes or memories don't fit.
    """
    return locals()


@tensor_partition_reduce.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    alu, dst, data = ALU[i["op"]], i["dst"], i["data"]
    compute = data.dtype if alu.is_bitvec else float32
    rows, load = load_rows(kit, data, compute=compute)
    result = kit.scratch(rows.shape[2:], compute.storage)
    into = b.as_dtype(dst, compute) if alu.is_bitvec else dst
    reduced = op(_reduce, rows[:, 0], alu.name, result)
    return [*load, reduced, save_rows(kit, into, result, compute)]


@function(reads="rows", writes="result", name="reduce partitions")
def _reduce(rows: np.ndarray, operator: str, result: np.ndarray) -> None:
    """Rows (P, N) folded in order, as floats or as integers."""
    alu = ALU["add" if operator == "average" else operator]
    fold = alu.integer if alu.is_bitvec else alu.f32
    assert fold is not None
    np.copyto(result, rows[0])
    for row in rows[1:]:
        fold(result, row, result)
    if operator == "average":
        np.divide(result, np.float32(len(rows)), result)
