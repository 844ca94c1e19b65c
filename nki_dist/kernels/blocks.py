"""What the kernels of this package are built from: shares of work, tiles, transposes, products.

All of it runs while a kernel is traced. Invariant: a helper allocates what it returns, and works on
the sizes it is given; the last tile of a row is narrower, never padded.
"""

from __future__ import annotations

from typing import Any

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError

# A matrix up to this many bytes per partition is loaded once and kept while rows go by.
KEPT_BYTES = 48 * 1024
# And what is contracted at a time, of a block of columns of the moving operand.
STREAMED_BYTES = 64 * 1024


def tiles(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    """(first index, width) of the tiles that cover [start, stop)."""
    return [(at, min(size, stop - at)) for at in range(start, stop, size)]


def programs() -> tuple[int, int]:
    """How many programs run this kernel, whatever the grid, and which of them this is."""
    count, me = 1, 0
    for axis in range(nl.program_ndim()):
        here = nl.num_programs(axes=axis)
        count, me = count * here, me * here + nl.program_id(axis)
    return count, me


def my_rows(rows: int) -> list[tuple[int, int]]:
    """Tiles of at most 128 rows that this program works on; programs get neighbouring tiles."""
    count, me = programs()
    every = tiles(0, rows, nl.tile_size.pmax)
    return every[len(every) * me // count : len(every) * (me + 1) // count]


def my_tiles(shape: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """Tiles of at most 128 by 512 of a matrix; programs share the columns."""
    count, me = programs()
    first, last = shape[1] * me // count, shape[1] * (me + 1) // count
    return [
        (slice(r0, r0 + height), slice(c0, c0 + width))
        for r0, height in tiles(0, shape[0], nl.tile_size.pmax)
        for c0, width in tiles(first, last, nl.tile_size.psum_fmax)
    ]


def require(holds: bool, message: str) -> None:
    """Refuse a call of a kernel."""
    if not holds:
        raise NkiValidationError(message, code="kernel-contract")


def output(shape: tuple[int, ...], dtype: Any) -> Any:
    """A tensor to return."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def sbuf(shape: tuple[int, ...], dtype: Any) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def psum(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def load(src: Any) -> Any:
    """A new SBUF tile with the contents of an HBM view."""
    tile = sbuf(src.shape, src.dtype)
    nisa.dma_copy(dst=tile, src=src)
    return tile


def load_row(row: Any) -> Any:
    """A row of HBM, repeated on all partitions: engines can't broadcast along them, DMA can."""
    pmax, columns = nl.tile_size.pmax, row.shape[0]
    tile = sbuf((pmax, columns), row.dtype)
    nisa.dma_copy(dst=tile, src=row.reshape((1, columns)).broadcast(0, pmax))
    return tile


def turned(tile: Any) -> Any:
    """The transpose of an SBUF tile of at most (128, 128)."""
    rows, columns = tile.shape
    on_psum = psum((columns, rows), tile.dtype)
    nisa.nc_transpose(dst=on_psum, data=tile, engine=nisa.tensor_engine)
    result = sbuf((columns, rows), tile.dtype)
    nisa.tensor_copy(dst=result, src=on_psum)
    return result


def load_turned(src: Any) -> Any:
    """The transpose of an HBM view (rows, at most 128 columns), as a tile (columns, rows)."""
    rows, columns = src.shape
    result = sbuf((columns, rows), src.dtype)
    for b0, breadth in tiles(0, rows, in_a_bank(src.dtype)):
        on_psum = psum((columns, breadth), src.dtype)
        for r0, height in tiles(0, breadth, nl.tile_size.pmax):
            nisa.nc_transpose(
                dst=on_psum[:, r0 : r0 + height],
                data=load(src[b0 + r0 : b0 + r0 + height, :]),
                engine=nisa.tensor_engine,
            )
        nisa.tensor_copy(dst=result[:, b0 : b0 + breadth], src=on_psum)
    return result


def turned_tiles(tile: Any) -> list[Any]:
    """The transpose of an SBUF tile (at most 128, columns), as tiles of at most 128 rows.

    What fits a bank of PSUM leaves it in one copy: beginning one costs as much as 60 columns.
    """
    rows, columns = tile.shape
    pmax, result = nl.tile_size.pmax, []
    rest = columns % pmax
    for t0, count in tiles(0, columns // pmax, in_a_bank(tile.dtype) // rows):
        on_psum = psum((pmax, count * rows), tile.dtype)
        places = [on_psum[:, r0 : r0 + rows] for r0 in range(0, count * rows, rows)]
        for c0, place in zip(range(t0 * pmax, columns, pmax), places):
            nisa.nc_transpose(dst=place, data=tile[:, c0 : c0 + pmax], engine=nisa.tensor_engine)
        copied = sbuf(on_psum.shape, tile.dtype)
        nisa.tensor_copy(dst=copied, src=on_psum)
        result += [copied[:, r0 : r0 + rows] for r0 in range(0, count * rows, rows)]
    if rest:
        result.append(turned(tile[:, columns - rest :]))
    return result


def in_a_bank(dtype: Any) -> int:
    """How many elements per partition a bank of PSUM holds."""
    return int(nl.tile_size.psum_fmax * nl.float32.itemsize // dtype.itemsize)


def load_tiles(src: Any, transpose: bool = False) -> list[Any]:
    """An HBM matrix (or its transpose) as SBUF tiles of at most 128 rows, all columns wide."""
    pmax = nl.tile_size.pmax
    if transpose:
        return [load_turned(src[:, c0 : c0 + w]) for c0, w in tiles(0, src.shape[1], pmax)]
    return [load(src[r0 : r0 + h, :]) for r0, h in tiles(0, src.shape[0], pmax)]


def contract(stationary: list[Any], moving: list[Any]) -> Any:
    """The sum of stationary.T @ moving over pairs of tiles, in PSUM: at most (128, 512)."""
    acc = psum((stationary[0].shape[1], moving[0].shape[1]))
    for left, right in zip(stationary, moving, strict=True):
        nisa.nc_matmul(dst=acc, stationary=left, moving=right)
    return acc


def times(left: list[Any], right: list[Any], dst: Any) -> None:
    """dst (HBM or SBUF, at most 128 rows) = left.T @ right, both as tiles of the contraction."""
    for n0, width in tiles(0, right[0].shape[1], nl.tile_size.gemm_moving_fmax):
        acc = contract(left, [tile[:, n0 : n0 + width] for tile in right])
        result = sbuf(acc.shape, dst.dtype)
        nisa.tensor_copy(dst=result, src=acc)
        nisa.dma_copy(dst=dst[:, n0 : n0 + width], src=result)


def matmul_into(
    dst: Any, lhs: Any, rhs: Any, transpose_lhs: bool = False, transpose_rhs: bool = False
) -> None:
    """dst = lhs @ rhs for HBM matrices, either of them transposed; programs share dst's rows."""
    (k, n) = rhs.shape[::-1] if transpose_rhs else rhs.shape
    k_tiles = tiles(0, k, nl.tile_size.pmax)

    def right(n0: int, width: int) -> list[Any]:
        block = rhs[n0 : n0 + width, :] if transpose_rhs else rhs[:, n0 : n0 + width]
        return load_tiles(block, transpose_rhs)

    size = 4 if rhs.dtype == nl.float32 else 2
    deep = STREAMED_BYTES // (nl.tile_size.gemm_moving_fmax * size) * nl.tile_size.pmax
    if k > deep:
        _stream_into(dst, lhs, rhs, transpose_lhs, transpose_rhs, deep)
        return
    columns = n if len(k_tiles) * n * size <= KEPT_BYTES else nl.tile_size.gemm_moving_fmax
    mine = my_rows(dst.shape[0])
    kept = right(0, n) if columns == n and mine else None
    for m0, height in mine:
        rows = lhs[:, m0 : m0 + height] if transpose_lhs else lhs[m0 : m0 + height, :]
        left = load_tiles(rows, not transpose_lhs)
        for n0, width in tiles(0, n, columns):
            block = right(n0, width) if kept is None else kept
            times(left, block, dst[m0 : m0 + height, n0 : n0 + width])


def _stream_into(
    dst: Any, lhs: Any, rhs: Any, transpose_lhs: bool, transpose_rhs: bool, deep: int
) -> None:
    """As matmul_into, for contractions so deep that operands don't fit SBUF: `deep` at a time."""
    k, n = rhs.shape[::-1] if transpose_rhs else rhs.shape
    for m0, height in my_rows(dst.shape[0]):
        for n0, width in tiles(0, n, nl.tile_size.gemm_moving_fmax):
            acc = psum((height, width))
            rows, columns = slice(m0, m0 + height), slice(n0, n0 + width)
            for k0, depth in tiles(0, k, deep):
                part = slice(k0, k0 + depth)
                left = lhs[part, rows] if transpose_lhs else lhs[rows, part]
                right = rhs[columns, part] if transpose_rhs else rhs[part, columns]
                for stationary, moving in zip(
                    load_tiles(left, not transpose_lhs), load_tiles(right, transpose_rhs)
                ):
                    nisa.nc_matmul(dst=acc, stationary=stationary, moving=moving)
            result = sbuf(acc.shape, dst.dtype)
            nisa.tensor_copy(dst=result, src=acc)
            nisa.dma_copy(dst=dst[rows, columns], src=result)


def combine(x: Any, y: Any, op: Any, dtype: Any = None) -> Any:
    """A new tile `op(x, y)`, of x's dtype unless another is given."""
    result = sbuf(x.shape, x.dtype if dtype is None else dtype)
    nisa.tensor_tensor(dst=result, data1=x, data2=y, op=op)
    return result


def fused(dst: Any, data: Any, factor: Any, op: Any, operand: Any, op0: Any = nl.multiply) -> None:
    """dst = op(data * factor, operand); `op0` is used in the place of `*`."""
    nisa.scalar_tensor_tensor(
        dst=dst, data=data, op0=op0, operand0=factor, op1=op, operand1=operand
    )


def activation_sums(dst: Any, total: Any, op: Any, data: Any, **scaling: Any) -> None:
    """dst = op(data * scale + bias), and the sum of each row in `total`, which costs nothing."""
    reset = nisa.reduce_cmd.reset_reduce
    nisa.activation(
        dst=dst, op=op, data=data, reduce_op=nl.add, reduce_res=total, reduce_cmd=reset, **scaling
    )


def row_sums(tile: Any) -> Any:
    """(rows, 1) float32 tile with the sum of each row."""
    result = sbuf((tile.shape[0], 1), nl.float32)
    nisa.tensor_reduce(dst=result, op=nl.add, data=tile, axis=1)
    return result


def sum_over_cores(partial: Any) -> Any:
    """Add up a tile that each of one or two cores has computed its part of; all get the sum."""
    count, me = programs()
    if count == 1:
        return partial
    require(count == 2, f"this kernel runs on 1 or 2 cores, got a grid of {count} programs")
    return combine(*exchanged(partial, me), nl.add)


def exchanged(mine: Any, me: int, pipe: int = 0) -> tuple[Any, Any]:
    """A tile of each of two cores: core 0's first, so that both cores compute the same bits."""
    theirs = sbuf(mine.shape, mine.dtype)
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=pipe)
    return (mine, theirs) if me == 0 else (theirs, mine)
