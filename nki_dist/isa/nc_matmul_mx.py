"""nisa.nc_matmul_mx: the product of packed, scaled 8- and 4-bit matrices."""

from __future__ import annotations

import numpy as np

from nki_dist import dtypes as d
from nki_dist.dtypes.mx import e8m0_to_float32, unpack_x4
from nki_dist.errors import invalid
from nki_dist.isa import _matmul as m
from nki_dist.isa.effects import Effects
from nki_dist.isa.indirection import is_indirect
from nki_dist.isa.kit import Array, Kit
from nki_dist.isa.operands import PSUM, SBUF, Custom, read, write
from nki_dist.isa.quantize_mx import GROUP, SCALES, check_partitions, check_scale, scale_rows
from nki_dist.isa.spec import Arch, Cost, Operation, instruction, op
from nki_dist.isa.timing_rules import array_tile, product_cycles
from nki_dist.ops.function import function
from nki_dist.program import Access, Instruction

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
def _check(i: Instruction, arch: Arch) -> None:
    stationary, moving = i["stationary"], i["moving"]
    check_partitions("stationary", stationary, arch)
    columns = stationary.free_size
    if columns % 2 or columns > arch.stationary_free_max:
        raise invalid(
            f"stationary has {columns} elements in its free dimensions (shape "
            f"{stationary.shape}); must be even, at most {arch.stationary_free_max}",
            code="matmul-stationary-size",
            got=columns,
            multiple=2,
            most=arch.stationary_free_max,
        )
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
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
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
