"""nisa.rand2: uniform random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist import dtypes as d
from nki_dist.arch import Arch
from nki_dist.dtypes import float32
from nki_dist.errors import NkiValidationError
from nki_dist.isa.checks import number_or_column, tile_dtype
from nki_dist.isa.effects import Effects, State, elementwise
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import read, write
from nki_dist.isa.randomness import APPROXIMATE, draw, uniform
from nki_dist.isa.rows import column, save_rows
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Access, Instruction

_FLOATS = (d.float8_e4m3, d.float8_e5m2, d.float16, d.bfloat16, d.float32, d.tfloat32)
_INTEGERS = (d.int8, d.int16, d.int32, d.uint8, d.uint16, d.uint32)


@instruction(
    engines="vector",
    effects=Effects(elementwise("min max"), partial=False, bits=None, state=State.RANDOM),
    min_generation=4,
    exactness=APPROXIMATE,
    checks=[number_or_column("min max", "dst"), tile_dtype("min max", float32)],
    cost=per_element("dst", share=1 / 4),
)
def rand2(
    dst=write(dtypes=(*_FLOATS, *_INTEGERS)),
    min=read(scalar=True),
    max=read(scalar=True),
    name=None,
):
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
    numbers = not isinstance(i["min"], Access) and not isinstance(i["max"], Access)
    if numbers and not i["min"] < i["max"]:
        message = f"min={i['min']}, max={i['max']}; allowed: min below max"
        raise NkiValidationError(message, code="argument-combination")


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
