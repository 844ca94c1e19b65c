"""nisa.tensor_tensor_scan: a recurrence along the free dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nki_dist.isa import broadcast as b
from nki_dist.isa.alu import ALU
from nki_dist.isa.checks import number_or_column, one_in_psum, same_tile, unpacked
from nki_dist.isa.effects import Effects, scan
from nki_dist.isa.operands import FLAG, Op, read, write
from nki_dist.isa.reductions import FOLDS
from nki_dist.isa.rows import column, load_rows
from nki_dist.isa.spec import Instruction, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.function import function

Operator = Callable[[Any, Any, np.ndarray], Any]


@instruction(
    engines="vector",
    effects=Effects(scan("data0 data1 initial"), partial=False, bits=None, state=None),
    checks=[
        same_tile("dst data0 data1"),
        one_in_psum("data0 data1"),
        number_or_column("initial", "data0"),
        unpacked("dst data0 data1 initial"),
        b.available("op0 op1"),
    ],
    cost=per_element("dst", share=2, flops=2),
)
def tensor_tensor_scan(
    dst=write(),
    data0=read(),
    data1=read(),
    initial=read(scalar=True),
    op0=Op(b.ARITHMETIC_BINARY),
    op1=Op(b.ARITHMETIC_BINARY),
    reverse0=FLAG.default(False),
    reverse1=FLAG.default(False),
    name=None,
):
    """`r[i] = (data0[i] op0 r[i-1]) op1 data1[i]` along each partition, from r[-1] = initial.

    Args:
        dst, data0, data1: tiles with the same partitions and elements per partition, which are
            taken in order; data0 and data1 not both in PSUM.
        initial: a number or a (P, 1) tile.
        op0, op1: binary arithmetic operators.
        reverse0: data0 is the right side of op0.
        reverse1: data1 is the left side of op1.

    The recurrence is float32 throughout; results are rounded to `dst.dtype` when written.

    Raises:
        NkiValidationError: shapes, dtypes, memories or operators don't fit.
    """
    return locals()


@tensor_tensor_scan.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    x, load0 = load_rows(kit, i["data0"])
    y, load1 = load_rows(kit, i["data1"])
    start, load2 = column(kit, i["initial"])
    shape = (x.shape[0], x.shape[2])
    result, work = kit.scratch(shape), kit.scratch((3, shape[1], shape[0]))
    operators = i["op0"], i["reverse0"], i["op1"], i["reverse1"]
    scanned = op(_scan, x.reshape(shape), y.reshape(shape), start, *operators, work, result)
    return [*load0, *load1, *load2, scanned, kit.save(i["dst"], result)]


@function(reads="x y start", writes="work result", name="scan")
def _scan(
    x: np.ndarray,
    y: np.ndarray,
    start: Any,
    op0: str,
    reverse0: bool,
    op1: str,
    reverse1: bool,
    work: np.ndarray,
    result: np.ndarray,
) -> None:
    """The recurrence along rows (P, N), a column at a time.

    Columns lie contiguous in transposed copies.
    """
    fold = FOLDS.get(ALU[op1].name) if ALU[op0].name == "multiply" else None
    if fold is not None and (x == 1).all():
        # 1 * r is r, so it is a running sum (or maximum, ...).
        np.copyto(result, y)
        fold(start, y[:, :1], out=result[:, :1])
        fold.accumulate(result, axis=-1, out=result)
        return
    f0, f1 = ALU[op0].f32, ALU[op1].f32
    a, c, r = work
    np.copyto(a, x.T)
    np.copyto(c, y.T)
    held = np.empty(len(x), result.dtype)
    np.copyto(held, start[:, 0] if isinstance(start, np.ndarray) else start)
    for xi, yi, ri in zip(a, c, r, strict=True):
        if reverse0:
            f0(held, xi, ri)
        else:
            f0(xi, held, ri)
        if reverse1:
            f1(yi, ri, ri)
        else:
            f1(ri, yi, ri)
        held = ri
    np.copyto(result, r.T)
