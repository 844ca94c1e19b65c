"""nisa.quantize_mx: 16-bit floats to packed 8-bit floats with a common scale per group of 32.

A scaling group is 8 partitions by the 4 values of one packed element. The scales of a quadrant of
32 partitions occupy 4 neighbouring partitions of the same quadrant of the scale tile, at an offset
of 0, 4, 8 or 12; the rest of it isn't touched. Follows `nisa.quantize_mx` and the MX deep dive.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nki_dist import dtypes as d
from nki_dist.dtypes.mx import E8M0_BIAS, E8M0_NAN, pack_x4
from nki_dist.errors import invalid
from nki_dist.isa.checks import check_elements, check_result
from nki_dist.isa.effects import Effects, Mask, of_one, tile_of
from nki_dist.isa.nc_stream_shuffle import start_partition
from nki_dist.isa.operands import SBUF, read, write
from nki_dist.isa.spec import Arch, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.function import function
from nki_dist.program import Access, Instruction

GROUP: Final = 8  # partitions of a scaling group
_QUADRANT: Final = 32
_OFFSETS: Final = (0, 4, 8, 12)


def scale_rows(partitions: int) -> np.ndarray:
    """Partition of the scale tile for each group of 8 partitions of the data."""
    group = np.arange(partitions // GROUP)
    per_quadrant = _QUADRANT // GROUP
    return group // per_quadrant * _QUADRANT + group % per_quadrant


def check_partitions(name: str, a: Access, arch: Arch) -> None:
    if a.shape[0] % _QUADRANT or a.shape[0] > arch.partitions:
        raise invalid(
            f"{name} has {a.shape[0]} partitions; must be a multiple of {_QUADRANT}, at most "
            f"{arch.partitions}",
            code="partition-multiple",
            got=a.shape[0],
            multiple=_QUADRANT,
            most=arch.partitions,
        )


def check_scale(name: str, scale: Access, partitions: int, elements: int) -> None:
    """The scale tile has a place for every group, in the right quadrants."""
    need = int(scale_rows(partitions)[-1]) + 1
    if scale.shape[0] < need:
        message = (
            f"{name} has {scale.shape[0]} partitions; the scales of {partitions} partitions of "
            f"data are spread over {need} (4 in each quadrant of 32)"
        )
        raise invalid(message, code="mx-scale-layout", got=scale.shape[0], allowed=need)
    why = f"the data has {elements} packed elements per partition, must be equal"
    check_elements(name, scale, elements, why, code="mx-scale-layout")
    offset = start_partition(scale) % _QUADRANT
    if offset not in _OFFSETS:
        message = (
            f"{name} starts at partition {start_partition(scale)}, {offset} into its quadrant; "
            "allowed: 0, 4, 8 or 12"
        )
        raise invalid(message, code="mx-scale-layout", got=offset, allowed=[0, 4, 8, 12])


SCALES: Final = (d.float8_e8m0fnu, d.uint8)
# Largest exponent of the element type.
_EMAX: Final = {d.float8_e4m3fn_x4: 8, d.float8_e5m2_x4: 15}


@of_one
def _quantized(i: Instruction, m: np.ndarray) -> Mask:
    """The scale of 8 partitions and 4 elements depends on all of them, and the values on it."""
    partitions, free = tile_of(i)
    groups = m.reshape(partitions // GROUP, GROUP, free, 4)
    return groups.any(axis=(1, 3)).repeat(GROUP, axis=0)


@instruction(
    engines="vector",
    effects=Effects(_quantized("src"), partial=True, bits=None, state=None),
    min_generation=4,
    cost=per_element("src", share=1 / 4),
)
def quantize_mx(
    dst=write(SBUF, dtypes=_EMAX),
    src=read(SBUF, dtypes=[d.float16, d.bfloat16]),
    dst_scale=write(SBUF, dtypes=SCALES, any_start=True),
    name=None,
):
    """Quantize to packed 8-bit floats, with one power of two per 8 partitions and 4 elements.

    Args:
        dst: tile (P, F/4), float8_e4m3fn_x4 or float8_e5m2_x4.
        src: float16 or bfloat16 tile (P, F); P a multiple of 32 up to 128, F a multiple of 4.
        dst_scale: float8_e8m0fnu or uint8 tile with F/4 elements per partition. The scales of
            quadrant q go to its partitions 32q to 32q + 3.

    The scale is `2 ** (floor(log2(largest)) - (Emax - 1))`, Emax 8 for e4m3fn and 15 for e5m2, and
    2**-127 for a group of zeros. A group with NaN or infinity, which isn't documented, gets NaN.

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
    """
    return locals()


@quantize_mx.check
def _check(i: Instruction, arch: Arch) -> None:
    dst, src = i["dst"], i["src"]
    check_partitions("src", src, arch)
    if src.free_size % 4:
        message = f"src has {src.free_size} elements per partition; must be a multiple of 4"
        raise invalid(message, code="mx-quantize-size", got=src.free_size, multiple=4)
    check_result(dst, src.shape[0], src.free_size // 4, f"src of shape {src.shape} makes")
    check_scale("dst_scale", i["dst_scale"], src.shape[0], dst.free_size)


@quantize_mx.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, src, scale = i["dst"], i["src"], i["dst_scale"]
    values = kit.scratch(src.shape)
    return [
        op(kit.convert(src.dtype, d.float32), values, kit.view(src)),
        op(_quantize, values, dst.dtype, kit.raw(dst), kit.raw(scale)),
    ]


@function(reads="values codes", writes="values target codes", partial=True, name="quantize")
def _quantize(values: np.ndarray, packed: d.DType, target: np.ndarray, codes: np.ndarray) -> None:
    """Values as packed ones and, in some rows of `codes`, their scales."""
    partitions = len(target)
    groups = values.reshape(partitions // GROUP, GROUP, -1, 4)
    largest = np.abs(groups).max(axis=(1, 3))
    finite = np.isfinite(largest)
    # frexp gives a mantissa in [0.5, 1), so its exponent is one more than floor(log2).
    exponent = np.frexp(largest)[1] - 1 - (_EMAX[packed] - 1)
    exponent = np.where(largest > 0, exponent, -E8M0_BIAS).clip(-E8M0_BIAS, E8M0_BIAS)
    exponent[~finite] = 0
    np.multiply(groups, np.ldexp(np.float32(1), -exponent)[:, None, :, None], groups)
    target[...] = pack_x4(values.reshape(partitions, -1), packed).reshape(target.shape)
    code = np.where(finite, exponent + E8M0_BIAS, E8M0_NAN).astype(np.uint8)
    codes[scale_rows(partitions)] = code.reshape(-1, *codes.shape[1:])
