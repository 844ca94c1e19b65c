"""NkiTileGrid and NkiBlockGrid: tensors seen as grids of tiles, and of blocks of tiles.

A grid is a view: it allocates nothing, and no instruction is recorded for it. `.data` is the tensor
that instructions take, where one access pattern can be all selected elements.

Choices where the pages of SDK 2.33 leave something open:

- `element_shape` and `.data` have a dimension for each of the tensor's; an integer that chose one
  slab of an untiled dimension takes that dimension away.
- `is_remainder`: some selected cell is smaller than a whole one, because the tensor ends in it.
- Several rows of tiles in SBUF or PSUM lie behind each other in the same partitions. In which order
  they would be one operand isn't said, so `.data` refuses them; of HBM, it is the plain slice.

Follows: nki.language.NkiGrid, NkiTileGrid, NkiBlockGrid, tiles and blocks of SDK 2.33.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from nki_dist.dtypes import DType
from nki_dist.errors import invalid
from nki_dist.language.tensor import NkiTensor, make
from nki_dist.language.tile_axes import Axis, Layout, choose
from nki_dist.program import MemoryRegion


class NkiGrid:
    """What NkiTileGrid and NkiBlockGrid have in common; made by `nl.tiles`, `nl.blocks` and
    `nl.alloc_tiles`, `nl.alloc_blocks`.

    `grid[i, j]` takes ints, which consume a coordinate, and slices with a positive step.

    Raises:
        NkiValidationError: it is constructed directly.
    """

    __slots__ = ("_axes", "_layout", "_tensor", "_tile")

    _axes: tuple[Axis, ...]  # one for each dimension of the tensor
    _layout: Layout
    _tensor: NkiTensor  # that holds all elements
    _tile: tuple[int, ...]

    __iter__ = None  # a grid is gone through by its coordinates

    def __init__(self, **kwargs: Any) -> None:
        message = (
            f"{type(self).__name__}s are made by nl.tiles, nl.blocks, nl.alloc_tiles and "
            "nl.alloc_blocks"
        )
        raise invalid(message, code="grid-made")

    def _with(self, axes: tuple[Axis, ...]) -> Any:
        grid = copy(self)
        grid._axes = axes
        return grid

    def __getitem__(self, key: Any) -> Any:
        return self._with(choose(self._axes, key, f"{self!r}"))

    def __setitem__(self, key: Any, value: Any) -> None:
        message = (
            f"assignment to cells of {self!r}; write to the .data of a selection with an "
            "instruction"
        )
        raise invalid(message, code="grid-index")

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each coordinate; of an untiled dimension, elements."""
        return tuple(axis.count for axis in self._axes if not axis.consumed)

    @property
    def element_shape(self) -> tuple[int, ...]:
        """Selected elements along each dimension of the tensor."""
        return tuple(a.elements for a in self._axes if a.tile or not a.consumed)

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """Elements of a whole tile along each tiled dimension."""
        return self._tile

    @property
    def index_step_elements(self) -> tuple[int, ...]:
        """Elements that a step of each coordinate goes on."""
        return tuple(axis.pitch for axis in self._axes if not axis.consumed)

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self._tensor.dtype

    @property
    def buffer(self) -> MemoryRegion:
        """The memory that holds them."""
        return self._tensor.buffer

    @property
    def is_remainder(self) -> bool:
        """Whether a selected cell is smaller than a whole one."""
        return any(axis.last < axis.unit for axis in self._axes if axis.tile)

    @property
    def is_data_representable(self) -> bool:
        """Whether there is a `.data`."""
        return self._layout.place(self._axes) is not None

    @property
    def data(self) -> NkiTensor:
        """All selected elements as a tensor of shape `element_shape`, which instructions take.

        Raises:
            NkiValidationError: no access pattern is all of them, see `is_data_representable`.
        """
        found = self._layout.place(self._axes)
        if found is None:
            message = (
                f"{self!r} has no .data: its cells aren't one access pattern, as they have gaps "
                "between them or are several rows of tiles in the same partitions. Select fewer, "
                "down to one tile"
            )
            raise invalid(message, code="grid-data", shape=self.shape)
        offset, shape, strides = found
        held = self._tensor
        return make(held.storage, held.offset + offset, tuple(shape), tuple(strides), held.dtype)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(shape={self.shape}, tile_shape={self._tile}, "
            f"element_shape={self.element_shape}, dtype={self.dtype}, buffer={self.buffer.value})"
        )


class NkiTileGrid(NkiGrid):
    """A tensor in coordinates of tiles; see `nl.tiles`."""

    __slots__ = ()


class NkiBlockGrid(NkiGrid):
    """A tensor in coordinates of blocks of tiles; see `nl.blocks`."""

    __slots__ = ("_block",)

    _block: tuple[int, ...]

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Tiles of a whole block along each tiled dimension."""
        return self._block


def tile_grid(
    tensor: NkiTensor, axes: tuple[Axis, ...], layout: Layout, tile: tuple[int, ...]
) -> NkiTileGrid:
    """A grid of tiles, without the checks of `nl.tiles`."""
    grid: NkiTileGrid = object.__new__(NkiTileGrid)
    grid._tensor, grid._axes, grid._layout, grid._tile = tensor, axes, layout, tile
    return grid


def block_grid(tiles: NkiTileGrid, block: tuple[int, ...]) -> NkiBlockGrid:
    """The tiles of a grid, which has no gaps, in blocks of so many."""
    grid: NkiBlockGrid = object.__new__(NkiBlockGrid)
    grid._tensor, grid._layout, grid._tile = tiles._tensor, tiles._layout, tiles._tile
    grid._block = block
    untiled = len(tiles._axes) - len(block)
    grid._axes = tuple(
        axis.cut(axis.tile * block[d - untiled]) if axis.tile else axis
        for d, axis in enumerate(tiles._axes)
    )
    return grid
