"""nisa.rand2: uniform random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist.arch import Arch
from nki_dist.dtypes import (
    bfloat16,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)
from nki_dist.errors import NkiValidationError
from nki_dist.isa.accumulate import check_dtype
from nki_dist.isa.checks import scalar_or_column
from nki_dist.isa.effects import Effects, State, elementwise
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import read, write
from nki_dist.isa.randomness import APPROXIMATE, draw, uniform
from nki_dist.isa.rows import column, save_rows
from nki_dist.isa.spec import Cost, instruction
from nki_dist.isa.timing_rules import issue_cycles
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Access, Instruction

_FLOATS = (float8_e4m3, float8_e5m2, float16, bfloat16, float32, tfloat32)
_DTYPES = (*_FLOATS, int8, int16, int32, uint8, uint16, uint32)


@instruction(
    engines="vector",
    effects=Effects(elementwise("min max"), partial=False, bits=None, state=State.RANDOM),
    min_generation=4,
    exactness=APPROXIMATE,
)
def rand2(dst=write(dtypes=_DTYPES), min=read(scalar=True), max=read(scalar=True), name=None):
    """Random numbers, uniform between min and max, computed in float32.

    Args:
        dst: tile in SBUF or PSUM.
        min, max: numbers or (P, 1) float32 tiles, min below max.

    Raises:
        NkiValidationError: dtypes, shapes or range don't fit.
    """
    return locals()


@rand2.check
def _check(i: Instruction, arch: Arch) -> None:
    for n in ("min", "max"):
        scalar_or_column(n, i[n], i["dst"].shape[0])
        check_dtype(n, i[n], float32)
    numbers = not isinstance(i["min"], Access) and not isinstance(i["max"], Access)
    if numbers and not i["min"] < i["max"]:
        raise NkiValidationError(
            f"min={i['min']}, max={i['max']}; allowed: min below max", code="argument-combination"
        )


@rand2.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst = i["dst"]
    low, load_low = column(kit, i["min"])
    high, load_high = column(kit, i["max"])
    bits, drawn = draw(kit, "vector", dst)
    values = kit.scratch(bits.shape)
    return [
        *load_low,
        *load_high,
        drawn,
        op(uniform, bits, values),
        op(_spread, values, low, high),
        save_rows(kit, dst, values),
    ]


@function(reads="values low high", writes="values")
def _spread(values: np.ndarray, low: Any, high: Any) -> None:
    """Numbers in [0, 1) become numbers between two others."""
    np.multiply(values, high - low, values)
    np.add(values, low, values)
    np.minimum(values, high, out=values)  # the addition may round up past it


@rand2.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    return Cost(cycles=issue_cycles(i["dst"].free_size / 4, arch))
