"""nl.tiles, blocks, alloc_tiles, alloc_blocks, and nl.empty_like of what they make.

Refused, because the pages of SDK 2.33 don't say what they mean: another tile_shape for a grid than
its own, grids of grids with gaps, untiled dimensions in SBUF and PSUM, run-time indices, and
`transpose_axes` of a grid.

Follows: nki.language.tiles, blocks, alloc_tiles, alloc_blocks and empty_like of SDK 2.33.
"""

from __future__ import annotations

from math import prod
from typing import Any

from nki_dist.errors import GridTypeError, GridValueError, invalid
from nki_dist.isa.dma_transpose import AXES
from nki_dist.isa.spec import released
from nki_dist.language.creation import ndarray
from nki_dist.language.tensor import NkiTensor
from nki_dist.language.tile_axes import Axis, Layout, axis_of, packed_layout
from nki_dist.language.tile_grid import NkiBlockGrid, NkiGrid, NkiTileGrid, block_grid, tile_grid
from nki_dist.program import MemoryRegion


def tiles(source, *, tile_shape=None):
    """A tensor as a grid of tiles; nothing is allocated or moved.

    Args:
        source: a tensor, of whose last dimensions tiles are made; or a grid, whose selected cells
            are given the coordinates of their tiles.
        tile_shape: elements of a tile, a tuple of at least two ints; of a grid, its own or None.

    Raises:
        NkiValidationError: the shapes don't fit, or the pages leave open what is asked for.
        CompileError: the kernel is checked against NKI 0.6.
    """
    released("nl.tiles")
    return _tiles(source, tile_shape, "nl.tiles")


def blocks(source, *, tile_shape=None, block_shape):
    """A tensor as a grid of blocks of tiles; nothing is allocated or moved.

    Args:
        source, tile_shape: as of `nl.tiles`.
        block_shape: tiles of a block along each tiled dimension.

    Raises:
        NkiValidationError, CompileError: as of `nl.tiles`.
    """
    released("nl.blocks")
    grid = _tiles(source, tile_shape, "nl.blocks")
    return block_grid(grid, _blocks_of(block_shape, grid.tile_shape, "nl.blocks"))


def alloc_tiles(*, tile_shape, element_shape, buffer, dtype, address=None, name=""):
    """A new tensor as a grid of tiles; its contents are undefined until written.

    In HBM it is a tensor of `element_shape`. In SBUF and PSUM the tiles lie behind each other in
    the same partitions, each with the room of a whole one.

    Args:
        tile_shape: elements of a tile, a tuple of at least two ints.
        element_shape: elements of the tensor; dimensions before the tiled ones aren't tiled.
        buffer, dtype, address, name: as of `nl.ndarray`.

    Raises:
        GridTypeError: a shape isn't a tuple of ints, or `buffer` no memory; it is a TypeError, too.
        GridValueError: a size below 1, or ranks that don't fit; it is a ValueError, too.
        NkiError: as of `nl.ndarray`.
        CompileError: the kernel is checked against NKI 0.6.
    """
    released("nl.alloc_tiles")
    return _allocated(tile_shape, element_shape, buffer, dtype, address, name, "nl.alloc_tiles")


def alloc_blocks(*, tile_shape, block_shape, element_shape, buffer, dtype, address=None, name=""):
    """The same as `nl.alloc_tiles`, in blocks of tiles.

    Args:
        tile_shape, element_shape, buffer, dtype, address, name: as of `nl.alloc_tiles`.
        block_shape: tiles of a block along each tiled dimension.

    Raises:
        GridTypeError, GridValueError, NkiError, CompileError: as of `nl.alloc_tiles`.
    """
    released("nl.alloc_blocks")
    what = "nl.alloc_blocks"
    grid = _allocated(tile_shape, element_shape, buffer, dtype, address, name, what)
    return block_grid(grid, _blocks_of(block_shape, grid.tile_shape, what))


def empty_like(x, dtype=None, buffer=None, name="", *, transpose_axes=None, address=None):
    """A new tensor, or grid, with the shape, dtype and buffer of `x`, unless given otherwise.

    Args:
        x: a tensor; or a grid, whose selected cells the new one has, without gaps between them.
        name, address: as of `nl.ndarray`; `address` from NKI 0.7 on.
        transpose_axes: from NKI 0.7 on: the order of dimensions, (1, 0), (2, 1, 0) or (3, 1, 2, 0),
            of an SBUF tensor that nisa.dma_transpose is to fill.

    Raises:
        NkiValidationError: another order, a partition dimension over 128, another memory, or the
            order of a grid.
        CompileError: an argument of 0.7 in a kernel that is checked against NKI 0.6.
    """
    if transpose_axes is not None:
        released("nl.empty_like(transpose_axes=)")
    if address is not None:
        released("nl.empty_like(address=)")
    element = x.dtype if dtype is None else dtype
    region = buffer or x.buffer
    if isinstance(x, NkiGrid):
        if transpose_axes is not None:
            message = f"nl.empty_like(transpose_axes={transpose_axes}) of {x!r}; allowed: tensors"
            raise invalid(message, code="grid-open")
        return _grid_like(x, element, region, name, address)
    shape = x.shape
    if transpose_axes is not None:
        shape = _transposed(shape, transpose_axes, region)
    return ndarray(shape, element, region, name, address)


def _transposed(shape: tuple[int, ...], axes: Any, region: MemoryRegion) -> tuple[int, ...]:
    allowed = AXES.get(len(shape))
    if axes != allowed:
        message = (
            f"nl.empty_like(transpose_axes={axes!r}) of {len(shape)} dimensions; allowed: "
            f"{allowed or 'tensors of two to four dimensions'}"
        )
        raise invalid(message, code="grid-shape", got=axes, allowed=allowed)
    if region is not MemoryRegion.sbuf:
        message = (
            f"nl.empty_like(transpose_axes=) in {region.value}; nisa.dma_transpose fills SBUF only"
        )
        raise invalid(
            message, code="memory-kind", hint="use buffer=nl.sbuf", got=region.value, allowed="sbuf"
        )
    return tuple(shape[d] for d in axes)


def _tiles(source: Any, tile_shape: Any, what: str) -> NkiTileGrid:
    if isinstance(source, NkiGrid):
        return _tiles_of_grid(source, tile_shape, what)
    if not isinstance(source, NkiTensor):
        raise GridTypeError(
            f"{what} of {source!r} of type {type(source).__name__}; allowed: tensors and grids",
            code="grid-shape",
        )
    tile = _sizes(tile_shape, "tile_shape", what, 2)
    if source.dynamic is not None:
        raise invalid(
            f"{what} of a tensor with a run-time index; tile the whole one, and index its tiles",
            code="grid-open",
        )
    axes = _axes(source.shape, tile, source.buffer, what)
    return tile_grid(source, axes, Layout(source.strides), tile)


def _tiles_of_grid(grid: NkiGrid, tile_shape: Any, what: str) -> NkiTileGrid:
    if tile_shape is not None and tile_shape != grid.tile_shape:
        raise invalid(
            f"{what}(tile_shape={tile_shape!r}) of {grid!r}; allowed: None or its own tile_shape",
            code="grid-open",
        )
    if any(axis.gaps for axis in grid._axes):
        raise invalid(f"{what} of {grid!r}, whose cells have gaps between them", code="grid-open")
    axes = tuple(axis.cut(axis.tile) if axis.tile else axis for axis in grid._axes)
    return tile_grid(grid._tensor, axes, grid._layout, grid.tile_shape)


def _allocated(
    tile_shape: Any, element_shape: Any, buffer: Any, dtype: Any, address: Any, name: str, what: str
) -> NkiTileGrid:
    tile = _sizes(tile_shape, "tile_shape", what, 2)
    elements = _sizes(element_shape, "element_shape", what, 2)
    if not isinstance(buffer, MemoryRegion):
        raise GridTypeError(
            f"{what}(buffer={buffer!r}); allowed: nl.sbuf, nl.psum, nl.private_hbm (nl.hbm), "
            "nl.shared_hbm",
            code="memory-unknown",
        )
    axes = _axes(elements, tile, buffer, what)
    if buffer.is_hbm:
        held = ndarray(elements, dtype, buffer, name, address)
        return tile_grid(held, axes, Layout(held.strides), tile)
    counts = tuple(axis.count for axis in axes)
    columns = prod(counts) * prod(tile[1:])
    held = ndarray((tile[0], columns), dtype, buffer, name, address)
    return tile_grid(held, axes, packed_layout(tile, counts, held.strides[0]), tile)


def _grid_like(x: NkiGrid, dtype: Any, buffer: MemoryRegion, name: str, address: Any) -> NkiGrid:
    """A grid of its own for the cells that another selects, with the same coordinates."""
    whole = _allocated(x.tile_shape, x.element_shape, buffer, dtype, address, name, "nl.empty_like")
    open_axes = [axis for axis in x._axes if axis.tile or not axis.consumed]
    grid: NkiGrid = whole
    if isinstance(x, NkiBlockGrid):
        grid = block_grid(whole, x.block_shape)
    found: NkiGrid = grid._with(tuple(axis.packed() for axis in open_axes))
    return found


def _axes(
    extents: tuple[int, ...], tile: tuple[int, ...], buffer: MemoryRegion, what: str
) -> tuple[Axis, ...]:
    """All tiles of a tensor; its last dimensions are tiled."""
    untiled = len(extents) - len(tile)
    if untiled < 0:
        raise GridValueError(
            f"{what}(tile_shape={tile}) of shape {extents}; a tile has at most as many dimensions",
            code="grid-shape",
            numbers={"got": len(tile), "most": len(extents)},
        )
    if untiled and not buffer.is_hbm:
        message = (
            f"{what}(tile_shape={tile}) of shape {extents} in {buffer.value}; only in HBM may "
            "dimensions be left untiled"
        )
        raise invalid(message, code="grid-open", got=len(tile), allowed=len(extents))
    sizes = (0,) * untiled + tile
    return tuple([axis_of(n, size or 1, size) for n, size in zip(extents, sizes)])


def _blocks_of(block_shape: Any, tile: tuple[int, ...], what: str) -> tuple[int, ...]:
    block = _sizes(block_shape, "block_shape", what, 1)
    if len(block) != len(tile):
        raise GridValueError(
            f"{what}(block_shape={block}) of tiles of shape {tile}; they must have as many "
            "dimensions",
            code="grid-shape",
            numbers={"got": len(block), "allowed": len(tile)},
        )
    return block


def _sizes(shape: Any, name: str, what: str, least: int) -> tuple[int, ...]:
    if type(shape) is not tuple or not all(type(n) is int for n in shape):
        raise GridTypeError(f"{what}({name}={shape!r}); must be a tuple of ints", code="grid-shape")
    if len(shape) < least or min(shape) < 1:
        message = f"{what}({name}={shape}); must have at least {least} dimensions, each at least 1"
        raise GridValueError(message, code="grid-shape", numbers={"got": shape})
    return shape
