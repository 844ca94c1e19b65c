"""nisa.dropout: replaces random elements by zero."""

from __future__ import annotations

import numpy as np

from nki_dist.arch import Arch
from nki_dist.dtypes import float32
from nki_dist.errors import NkiValidationError
from nki_dist.isa.checks import number_or_column, same_dtype, same_tile, within
from nki_dist.isa.effects import Effects, State, elementwise, moves
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import read, write
from nki_dist.isa.randomness import APPROXIMATE, draw, uniform
from nki_dist.isa.rows import column
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.arrays import copy_where
from nki_dist.ops.function import copy
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Access, Instruction


@instruction(
    engines="vector",
    effects=Effects(
        elementwise("data prob"), partial=False, bits=moves("dst data"), state=State.RANDOM
    ),
    exactness=APPROXIMATE,
    checks=[
        same_tile("dst data"),
        same_dtype("dst data", "they must be equal"),
        number_or_column("prob", "data"),
        within("prob", 0, 1),
    ],
    cost=per_element("data"),
)
def dropout(dst=write(), data=read(), prob=read(scalar=True), name=None):
    """`dst = data` with each element replaced by 0 with probability `prob`; nothing is scaled.

    Args:
        dst, data: tiles of one dtype with the same partitions and elements per partition.
        prob: a number from 0 to 1 or a (P, 1) tile: float32 if data has an integer type, else any
            float type.

    Kept elements keep their bits. The random bits are the Vector engine's (isa.randomness).

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
    """
    return locals()


@dropout.check
def _check(i: Instruction, arch: Arch) -> None:
    data, prob = i["data"], i["prob"]
    if not isinstance(prob, Access):
        return
    if not (prob.dtype is float32 or (prob.dtype.is_float and data.dtype.is_float)):
        allowed = "float types" if data.dtype.is_float else "float32"
        raise NkiValidationError(
            f"prob has dtype {prob.dtype} with data of {data.dtype}; allowed: {allowed}",
            code="dtype-mismatch",
            numbers={"got": prob.dtype, "allowed": allowed},
        )


@dropout.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, data = i["dst"], i["data"]
    prob, load = column(kit, i["prob"])
    random, drawn = draw(kit, "vector", data)
    chances, drop = kit.scratch(random.shape), kit.scratch(random.shape, bool)
    bits = kit.scratch(data.shape, data.dtype.raw)
    return [
        *load,
        op(copy, bits, kit.raw(data)),
        drawn,
        op(uniform, random, chances),
        op(np.less, chances, prob, drop),
        op(copy_where, bits, 0, drop.reshape(data.shape)),
        op(copy, kit.raw(dst), bits.reshape(dst.shape)),
    ]
