"""The geometry of tile grids: cells along one dimension, and where tiles lie in memory.

A cell is a tile, or a block of tiles; of a dimension that isn't tiled, one element. Cells are cut
where the tensor, or the selection they were made of, ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from nki_dist.errors import invalid


@dataclass(frozen=True)
class Axis:
    """The selected cells along one dimension of a tensor.

    Attributes:
        start, stop: elements: where the first cell begins, where cells are cut.
        unit: elements of a whole cell.
        count: cells.
        step: from one cell to the next, in cells.
        tile: elements of a tile; 0 of a dimension that isn't tiled.
        consumed: an integer chose its one cell, so that it is no coordinate any longer.
    """

    start: int
    stop: int
    unit: int
    count: int
    step: int = 1
    tile: int = 0
    consumed: bool = False

    @property
    def pitch(self) -> int:
        """Elements from one cell to the next."""
        return self.unit * self.step

    @property
    def gaps(self) -> bool:
        """Whether elements between the cells aren't selected."""
        return self.step > 1 and self.count > 1

    @property
    def last(self) -> int:
        """Elements of the last cell."""
        return min(self.unit, self.stop - self.start - (self.count - 1) * self.pitch)

    @property
    def elements(self) -> int:
        """Elements of all cells together."""
        return (self.count - 1) * self.unit + self.last

    def at(self, index: int) -> Axis:
        """One cell, consumed."""
        start = self.start + index * self.pitch
        stop = min(start + self.unit, self.stop)
        return replace(self, start=start, stop=stop, count=1, step=1, consumed=True)

    def sliced(self, start: int, step: int, count: int) -> Axis:
        return replace(
            self, start=self.start + start * self.pitch, count=count, step=self.step * step
        )

    def cut(self, unit: int) -> Axis:
        """Other cells over the same elements, which have no gaps, as coordinates again."""
        n = self.elements
        return Axis(self.start, self.start + n, unit, -(-n // unit), 1, self.tile)

    def packed(self) -> Axis:
        """The same cells without gaps, from element 0 on."""
        return replace(self, start=0, stop=self.elements, step=1)


def axis_of(extent: int, unit: int, tile: int) -> Axis:
    """All cells of a dimension."""
    return Axis(0, extent, unit, -(-extent // unit), 1, tile)


def choose(axes: tuple[Axis, ...], key: Any, title: str) -> tuple[Axis, ...]:
    """The cells that `grid[key]` selects.

    Raises:
        NkiValidationError: too many indices, one outside, a step backwards, or none of an int and a
            slice of ints; what the pages don't say of run-time indices is refused, too.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    open_axes = [n for n, axis in enumerate(axes) if not axis.consumed]
    if len(keys) > len(open_axes):
        message = f"{len(keys)} indices for the {len(open_axes)} coordinates of {title}"
        raise invalid(message, code="grid-index", got=len(keys), most=len(open_axes))
    found = list(axes)
    for n, k in zip(open_axes, keys):
        found[n] = _cells(axes[n], k, title)
    return tuple(found)


def _cells(axis: Axis, k: Any, title: str) -> Axis:
    if isinstance(k, slice):
        return _slice(axis, k, title)
    if type(k) is not int:
        raise invalid(
            f"index {k!r} of type {type(k).__name__} of {title}; allowed: ints and slices of ints",
            code="grid-index",
        )
    if not -axis.count <= k < axis.count:
        message = f"index {k} of {title}, where there are {axis.count}"
        raise invalid(message, code="grid-index", got=k, least=-axis.count, most=axis.count - 1)
    return axis.at(k % axis.count)


def _slice(axis: Axis, k: slice, title: str) -> Axis:
    if not all(b is None or type(b) is int for b in (k.start, k.stop, k.step)):
        raise invalid(f"slice {k} of {title}; its bounds and step must be ints", code="grid-index")
    if k.step is not None and k.step < 1:
        message = f"slice step {k.step} of {title}; must be >= 1"
        raise invalid(message, code="grid-index", got=k.step, least=1)
    start, stop, step = k.indices(axis.count)
    if start >= stop:
        message = f"slice {k} of {title} selects none of its {axis.count} cells"
        raise invalid(message, code="grid-index", most=axis.count)
    return axis.sliced(start, step, -(-(stop - start) // step))


@dataclass(frozen=True)
class Layout:
    """Where the elements of a tiled tensor lie in the tensor that holds them.

    Attributes:
        strides: elements between neighbours within a tile, by dimension.
        tile_strides: elements between neighbouring tiles; None where a tile's neighbour follows it
            as in a tensor without tiles.
    """

    strides: tuple[int, ...]
    tile_strides: tuple[int, ...] | None = None

    def place(self, axes: tuple[Axis, ...]) -> tuple[int, list[int], list[int]] | None:
        """(offset, shape, strides) of all selected elements as one pattern; None if there is none.

        The pattern has a dimension for each of the tensor, but for untiled ones that are consumed.
        """
        offset, shape, strides = 0, [], []
        for d, axis in enumerate(axes):
            stride = self.strides[d]
            if axis.gaps:
                return None
            if self.tile_strides is None or not axis.tile:
                offset += axis.start * stride
            else:
                pitch = self.tile_strides[d]
                offset += axis.start // axis.tile * pitch
                # Several tiles go on where one ends, or there is no single stride.
                if axis.elements > axis.tile and pitch != axis.tile * stride:
                    return None
            if axis.consumed and not axis.tile:
                continue
            shape.append(axis.elements)
            strides.append(stride)
        return offset, shape, strides


def packed_layout(tile: tuple[int, ...], tiles: tuple[int, ...], row: int) -> Layout:
    """The layout of on-chip grids: tile after tile along the free dimension, each with the room of
    a whole one.

    Args:
        tile: shape of a tile, the partition dimension first.
        tiles: how many there are along each dimension.
        row: elements of a partition.
    """
    strides = [row, *(prod(tile[d + 1 :]) for d in range(1, len(tile)))]
    slot = prod(tile[1:])
    return Layout(tuple(strides), tuple(slot * prod(tiles[d + 1 :]) for d in range(len(tile))))
