"""nisa.quantize_mx and nc_matmul_mx: packed 8- and 4-bit floats with a scale for each group of 32.

A scaling group is 8 partitions by the 4 values of one packed element. The scales of a quadrant of
32 partitions occupy 4 neighbouring partitions of the same quadrant of the scale tile, at an offset
of 0, 4, 8 or 12; the rest of it isn't touched. Follows `nisa.quantize_mx` and the MX deep dive.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nki_dist import dtypes as d
from nki_dist.dtypes.mx import E8M0_BIAS, E8M0_NAN, e8m0_to_float32, pack_x4, unpack_x4
from nki_dist.errors import invalid
from nki_dist.isa import matmul as m
from nki_dist.isa.checks import check_elements, check_result
from nki_dist.isa.effects import Effects, Mask, of_one, tile_of
from nki_dist.isa.indirection import is_indirect
from nki_dist.isa.kit import Array
from nki_dist.isa.operands import PSUM, SBUF, Custom, read, write
from nki_dist.isa.reach import start_partition
from nki_dist.isa.spec import Access, Arch, Cost, Instruction, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import array_tile, per_element, product_cycles
from nki_dist.ops.function import function

GROUP: Final = 8  # partitions of a scaling group
_QUADRANT: Final = 32
_OFFSETS: Final = (0, 4, 8, 12)


def scale_rows(partitions: int) -> np.ndarray:
    """Partition of the scale tile for each group of 8 partitions of the data."""
    group = np.arange(partitions // GROUP)
    per_quadrant = _QUADRANT // GROUP
    return group // per_quadrant * _QUADRANT + group % per_quadrant


def check_partitions(name: str, a: Access, arch: Arch) -> None:
    got, unit, most = a.shape[0], _QUADRANT, arch.partitions
    if got % unit or got > most:
        message = f"{name} has {got} partitions; must be a multiple of {unit}, at most {most}"
        raise invalid(message, code="partition-multiple", got=got, multiple=unit, most=most)


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
def _quantize_mx_check(i: Instruction, arch: Arch) -> None:
    dst, src = i["dst"], i["src"]
    check_partitions("src", src, arch)
    if src.free_size % 4:
        message = f"src has {src.free_size} elements per partition; must be a multiple of 4"
        raise invalid(message, code="mx-quantize-size", got=src.free_size, multiple=4)
    check_result(dst, src.shape[0], src.free_size // 4, f"src of shape {src.shape} makes")
    check_scale("dst_scale", i["dst_scale"], src.shape[0], dst.free_size)


@quantize_mx.meaning
def _quantize_mx_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, src, scale = i["dst"], i["src"], i["dst_scale"]
    values, load = kit.copied(src)
    return [load, op(_quantize, values, dst.dtype, kit.raw(dst), kit.raw(scale))]


@function(reads="values codes", writes="values target codes", name="quantize")
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


PACKED = (d.float8_e5m2_x4, d.float8_e4m3fn_x4, d.float4_e2m1fn_x4)


@instruction(
    engines="tensor",
    effects=Effects(m.multiplied("stationary moving"), partial=False, bits=None, state=None),
    accumulates=True,
    chains=True,
    min_generation=4,
    exactness="approximate: float32 sums over the contraction, in an order that isn't published",
)
def nc_matmul_mx(
    dst=write(PSUM, dtypes=[d.float32, d.bfloat16], indirect=32),
    stationary=read(SBUF, dtypes=PACKED, indirect=32),
    moving=read(SBUF, dtypes=PACKED, indirect=32),
    stationary_scale=read(SBUF, dtypes=SCALES, any_start=True, indirect=32),
    moving_scale=read(SBUF, dtypes=SCALES, any_start=True, indirect=32),
    tile_position=Custom(m.pair).default(None),
    tile_size=Custom(m.pair).default(None),
    accumulate=Custom(m.accumulate_flag).default(None),
    name=None,
):
    """`dst = stationary.T @ moving` of packed values times their scales.

    Args:
        dst: PSUM tile (M, N), float32 or bfloat16.
        stationary: SBUF tile (K, M) of a packed dtype; K a multiple of 32 up to 128, M even up to
            128. The contraction is over partitions and the 4 values of each element.
        moving: SBUF tile (K, N) of a packed dtype; N up to 4096, 8192 with a bfloat16 dst.
        stationary_scale, moving_scale: exponents as nisa.quantize_mx lays them out.
        tile_position, tile_size: (row, 0) and (rows, 128), to use part of the array's rows.
        accumulate: as in nisa.nc_matmul.

    Raises:
        NkiValidationError: shapes, dtypes or tiling don't fit.
    """
    return locals()


@nc_matmul_mx.check
def _nc_matmul_mx_check(i: Instruction, arch: Arch) -> None:
    stationary, moving = i["stationary"], i["moving"]
    check_partitions("stationary", stationary, arch)
    columns, most = stationary.free_size, arch.stationary_free_max
    if columns % 2 or columns > most:
        message = (
            f"stationary has {columns} elements in its free dimensions (shape "
            f"{stationary.shape}); must be even, at most {most}"
        )
        raise invalid(message, code="matmul-stationary-size", got=columns, multiple=2, most=most)
    m.check_sizes(i, columns, moving.free_size, arch)
    for name in ("stationary", "moving"):
        check_scale(f"{name}_scale", i[f"{name}_scale"], i[name].shape[0], i[name].free_size)
    m.check_tiling(i, arch, stationary.shape[0], columns, row_only=True)


@nc_matmul_mx.check
def _indirect(i: Instruction, arch: Arch) -> None:
    for name in ("stationary", "moving"):
        data, scale = i[name], i[name + "_scale"]
        if not (is_indirect(data) or is_indirect(scale)):
            continue
        both = is_indirect(data) and is_indirect(scale)
        if not both or not data.dynamic.source.same_elements(scale.dynamic.source):
            message = (
                f"{name} and {name}_scale: either both are .indirect() views with the same index, "
                "or neither is"
            )
            raise invalid(message, code="indirect-view")


@nc_matmul_mx.meaning
def _nc_matmul_mx_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    left, fill_left = _matrix(i["stationary"], i["stationary_scale"], kit)
    right, fill_right = _matrix(i["moving"], i["moving_scale"], kit)
    out, after = m.deposit(i["dst"], i.accumulation, kit)
    return [fill_left, fill_right, *m.product(left, right, out, kit), *after]


def _matrix(a: Access, scale: Access, kit: Kit) -> tuple[Array, Operation]:
    """The values as a float32 matrix (4 * partitions, elements), and what fills it."""
    partitions, count = a.shape[0], a.free_size
    matrix = kit.scratch((partitions // GROUP, GROUP, 4, count))
    filled = op(_unpack, kit.view(a), kit.raw(scale), a.dtype, matrix)
    return matrix.reshape(4 * partitions, count), filled


@function(reads="data codes", writes="matrix", name="unpack scaled")
def _unpack(data: np.ndarray, codes: np.ndarray, dtype: d.DType, matrix: np.ndarray) -> None:
    """Packed values times their scales, (groups, partitions of a group, 4, elements)."""
    groups, _, _, count = matrix.shape
    partitions = groups * GROUP
    rows = scale_rows(partitions)
    values = unpack_x4(data.reshape(partitions, count), dtype)
    grouped = values.reshape(groups, GROUP, count, 4).transpose(0, 1, 3, 2)
    factors = e8m0_to_float32(codes[rows].reshape(len(rows), 1, 1, count))
    np.multiply(grouped, factors, matrix)


@nc_matmul_mx.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    columns, n = i["stationary"].free_size, i["moving"].free_size
    flops = 2 * 4 * i["stationary"].shape[0] * columns * n
    tile = array_tile(i, arch)
    return Cost(cycles=product_cycles(n, columns, arch), flops=flops, known=False, tile=tile)
