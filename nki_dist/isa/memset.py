"""nisa.memset: fills a tile with a constant."""

from __future__ import annotations

import math

import numpy as np

from nki_dist.dtypes import DType, float8_e8m0fnu, float32
from nki_dist.dtypes.casts import converter
from nki_dist.errors import invalid
from nki_dist.isa.checks import not_in_psum
from nki_dist.isa.effects import NOTHING_ELSE
from nki_dist.isa.enums import engine
from nki_dist.isa.operands import ANYWHERE, Number, write
from nki_dist.isa.spec import Arch, Cost, Kit, Operation, instruction, may_reject, op, todays_kernel
from nki_dist.isa.timing_rules import issue_cycles
from nki_dist.ops.arrays import fill
from nki_dist.program import Instruction


@instruction(
    engines="vector gpsimd",
    effects=NOTHING_ELSE,
    fills="value",
    checks=[not_in_psum("dst")],
)
def memset(dst=write(ANYWHERE), value=Number(), engine=engine.unknown, name=None):
    """Every element of `dst` becomes `value`.

    Args:
        dst: tile in SBUF or PSUM (or a tensor in HBM, which costs a DMA write).
        value: a Python number, infinities included. Integer dtypes take whole numbers in range (and
            -1 for "all ones" of unsigned types); packed x4 dtypes take a whole packed word. 0 for
            float8_e8m0fnu, which has none, is 2**-127, as quantize_mx gives a group of zeros:
            nki-library (mxfp8_utils/load_block) fills data and scales that pad with it.
        engine: vector (default) or gpsimd.

    Raises:
        NkiValidationError: the value can't be held by `dst.dtype`.
    """
    return locals()


@memset.check
def _check(i: Instruction, arch: Arch) -> None:
    dtype, value = i["dst"].dtype, i["value"]
    if todays_kernel():
        _check_kind(dtype, value)
    if dtype.is_integer or dtype.is_mx:
        whole = isinstance(value, int) or (math.isfinite(value) and value == int(value))
        low = dtype.min if dtype.kind == "int" else -1
        high = dtype.max if dtype.is_integer else (1 << dtype.bits) - 1
        if not whole or not low <= value <= high:
            message = f"value={value!r} for dtype {dtype}; allowed: whole numbers {low} to {high}"
            raise invalid(message, code="argument-range", got=value, least=low, most=high)


def _check_kind(dtype: DType, value: float) -> None:
    """NKI 0.3 and later convert nothing; kernels of AWS's library give whole floats, and run."""
    if dtype.is_integer and isinstance(value, float) and value.is_integer():
        may_reject(
            f"value={value!r} is a float, dst has dtype {dtype}; the release notes say that an "
            f"integer type is filled with an int, such as {int(value)}",
            code="fill-float",
        )
    if dtype.is_mx and value != 0:
        raise invalid(
            f"value={value!r} for the packed dtype {dtype}; allowed: 0",
            code="dtype-packed",
            hint="fill a view of the tile as an integer type for other bit patterns",
            got=value,
            allowed=0,
        )


def constant(value: float, dtype: DType) -> np.ndarray:
    """`value` as one element of the dtype's storage."""
    if dtype.is_integer or dtype.is_mx or (dtype is float8_e8m0fnu and value == 0):
        return np.array(int(value) & ((1 << dtype.bits) - 1), np.uint64).astype(dtype.raw)
    return bits_of(value, dtype)


def bits_of(value: float, dtype: DType) -> np.ndarray:
    """`value` as float32, rounded to the dtype: one element of its bits."""
    out = np.empty((), dtype.storage)
    with np.errstate(all="ignore"):
        converter(float32, dtype)(out, np.array(value, np.float32))
    return out.view(dtype.raw)


@memset.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    return [op(fill, kit.raw(i["dst"]), constant(i["value"], i["dst"].dtype)[()])]


@memset.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    n = i["dst"].free_size
    if i.engine == "gpsimd":
        return Cost(cycles=arch.gpsimd_start + n)
    half = i["value"] == 0 and i["dst"].dtype.bits == 16
    return Cost(cycles=issue_cycles(n / 2 if half else n, arch))
