"""nisa.rng, rand2 and dropout: random bits and numbers, and what they decide."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist import dtypes as d
from nki_dist.dtypes import float32, int8, int16, int32, uint8, uint16, uint32
from nki_dist.errors import invalid
from nki_dist.isa.checks import (
    not_in_psum,
    number_or_column,
    same_dtype,
    same_tile,
    tile_dtype,
    within,
)
from nki_dist.isa.effects import CLEAN, Effects, State, elementwise, moves
from nki_dist.isa.enums import engine
from nki_dist.isa.operands import read, write
from nki_dist.isa.randomness import APPROXIMATE, draw, uniform
from nki_dist.isa.rows import column
from nki_dist.isa.spec import Arch, Kit, Operation, instruction, op, require_generation
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.arrays import cast, copy_where
from nki_dist.ops.function import copy, function
from nki_dist.program import Access, Instruction


@instruction(
    engines="vector gpsimd",
    effects=Effects(CLEAN, partial=False, bits=None, state=State.RANDOM),
    exactness=APPROXIMATE,
    checks=[not_in_psum("dst")],
    cost=per_element("dst", known=False),
)
def rng(
    dst=write(dtypes=(int8, int16, int32, uint8, uint16, uint32)), engine=engine.vector, name=None
):
    """Every element of `dst` becomes random bits: the low bits of a 32-bit random word.

    Args:
        dst: integer tile, in SBUF if the engine is gpsimd.
        engine: vector (default), or gpsimd (NeuronCore-v3 on).

    Raises:
        NkiValidationError: dtype, memory or engine don't fit.
    """
    return locals()


@rng.check
def _rng_check(i: Instruction, arch: Arch) -> None:
    if i.engine == "gpsimd":
        require_generation(arch, 3, "rng on the GpSimd engine")


@rng.meaning
def _rng_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    bits, drawn = draw(kit, i.engine, i["dst"])
    return [drawn, op(cast, kit.raw(i["dst"]), bits.reshape(i["dst"].shape))]


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
def _rand2_check(i: Instruction, arch: Arch) -> None:
    numbers = not isinstance(i["min"], Access) and not isinstance(i["max"], Access)
    if numbers and not i["min"] < i["max"]:
        message = f"min={i['min']}, max={i['max']}; allowed: min below max"
        raise invalid(message, code="argument-combination")


@rand2.meaning
def _rand2_meaning(i: Instruction, kit: Kit) -> list[Operation]:
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
        kit.save(dst, values),
    ]


@function(reads="values low high", writes="values")
def _spread(values: np.ndarray, low: Any, high: Any) -> None:
    """Numbers in [0, 1) become numbers between two others."""
    np.multiply(values, high - low, values)
    np.add(values, low, values)
    np.minimum(values, high, out=values)  # the addition may round up past it


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
def _dropout_check(i: Instruction, arch: Arch) -> None:
    data, prob = i["data"], i["prob"]
    if not isinstance(prob, Access):
        return
    if not (prob.dtype is float32 or (prob.dtype.is_float and data.dtype.is_float)):
        allowed = "float types" if data.dtype.is_float else "float32"
        message = f"prob has dtype {prob.dtype} with data of {data.dtype}; allowed: {allowed}"
        raise invalid(message, code="dtype-mismatch", got=prob.dtype, allowed=allowed)


@dropout.meaning
def _dropout_meaning(i: Instruction, kit: Kit) -> list[Operation]:
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
