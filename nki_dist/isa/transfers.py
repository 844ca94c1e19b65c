"""DMA transfers that partly lie beyond a tensor: which of their rows are inside.

DMA checks the address of every descriptor. A row is what one descriptor moves: the elements along
the last dimension of both operands (of the shape they have in common), where they are neighbours in
both memories; elements that aren't are rows of their own. A row of which only a part is inside is
outside. `oob_mode.skip` moves the rows inside and drops the others; without it the first row
outside is an error.

Follows: AWS Neuron SDK, `nki/api/nki/isa/__init__.py` (dma_copy: addresses are checked and a
transfer is skipped "for a given dynamic address or index"), and nki-library's `indexed_flatten`,
whose reference drops the rows before a tensor's first and after its last, one by one. What a
descriptor holds isn't documented; that it is a row as the kernel writes it is our reading.

Addresses are bounds for patterns of `.ap` in HBM; indices and `nl.ds` stay in their dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from nki_dist.isa.shapes import refine
from nki_dist.program import Access, Dynamic, Instruction

Values = Callable[[Dynamic], int]  # of a scalar run-time index
Ranges = tuple[tuple[int, int], ...]


class Block(NamedTuple):
    """A transfer, or a part of one, with its operands over one common shape.

    Attributes:
        operands: by parameter name; element for element the same as those of the instruction.
        joined: the operands in which the elements of a row are neighbours.
        back: dimensions of an operand as the instruction has them, where that is another order.
    """

    operands: Mapping[str, Access]
    joined: Sequence[str]
    back: Mapping[str, tuple[int, ...]] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        return next(iter(self.operands.values())).shape

    @property
    def row(self) -> int:
        """Elements of a row."""
        joined = all(self.operands[name].strides[-1] == 1 for name in self.joined)
        return self.shape[-1] if joined else 1

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape without the elements of a row."""
        return self.shape[:-1] if self.row > 1 else self.shape


def paired(dst: Access, src: Access) -> list[Block]:
    """A transfer whose elements are matched in row-major order."""
    both = {"dst": dst, "src": src}
    if not any(a.dynamic is not None and a.dynamic.kind == "vector" for a in (dst, src)):
        common = refine([(a.shape, a.strides) for a in (dst, src)], merge=False)
        if common is not None:
            shape, strides = common
            if 1 in (dst.shape[-1], src.shape[-1]):  # rows of one element
                shape, strides = (*shape, 1), [(*s, 1) for s in strides]
            shaped = {
                name: Access(a.storage, a.offset, shape, s, a.dtype, a.dynamic)
                for (name, a), s in zip(both.items(), strides, strict=True)
            }
            return [Block(shaped, ("dst", "src"))]
    return [
        Block({name: _segment(a, start, n) for name, a in both.items()}, ("dst", "src"))
        for start, n in _runs(dst, src)
    ]


def _runs(dst: Access, src: Access) -> Iterator[tuple[int, int]]:
    """(first element, elements) of the stretches that lie in the last dimension of both."""
    lasts = [_last(a) for a in (dst, src)]
    start = 0
    while start < dst.size:
        n = min(last - start % last for last in lasts)
        yield start, n
        start += n


def _last(a: Access) -> int:
    vector = a.dynamic is not None and a.dynamic.kind == "vector"
    return 1 if vector and len(a.shape) == 1 else a.shape[-1]


def _segment(a: Access, start: int, n: int) -> Access:
    """`n` elements of the last dimension, as a pattern of one row."""
    index = [int(k) for k in np.unravel_index(start, a.shape)]
    dynamic, free = a.dynamic, 0
    if dynamic is not None and dynamic.kind == "vector":
        dynamic, free = one_index(dynamic, index[0]), 1
    offset = a.offset + sum(k * s for k, s in zip(index[free:], a.strides[free:]))
    return Access(a.storage, offset, (1, n), (0, a.strides[-1]), a.dtype, dynamic)


def one_index(dynamic: Dynamic, row: int) -> Dynamic:
    """The vector offset of one row; index tiles are read column by column."""
    source = dynamic.source
    column, partition = divmod(row, source.shape[0])
    offset = source.offset + partition * source.strides[0] + column * source.strides[-1]
    cell = Access(source.storage, offset, (1, 1), source.strides[:1] * 2, source.dtype)
    return dynamic.of(cell)


def cut(a: Access, ranges: Ranges) -> Access:
    """A box of an access; of rows with a vector offset, dimension 0 is cut in one place only."""
    offset, dynamic, first = a.offset, a.dynamic, 0
    if dynamic is not None and dynamic.kind == "vector" and ranges[0] != (0, a.shape[0]):
        low, high = ranges[0]
        assert high == low + 1
        dynamic, first = one_index(dynamic, low), 1
    offset += sum(low * s for (low, _), s in list(zip(ranges, a.strides))[first:])
    shape = tuple(high - low for low, high in ranges)
    return Access(a.storage, offset, shape, a.strides, a.dtype, dynamic)


# ---- which rows are inside ----------------------------------------------------------------------


def parts_inside(i: Instruction, blocks: Sequence[Block], value: Values) -> list[Instruction]:
    """Instructions that together move the rows inside; their scalar indices are filled in."""
    parts = []
    for block in blocks:
        for box in _boxes(_inside(block, value)):
            ranges = (*box, (0, block.row)) if block.row > 1 else box
            operands = {}
            for name, a in block.operands.items():
                a = fixed(cut(a, ranges), value)
                operands[name] = permuted(a, block.back[name]) if name in block.back else a
            parts.append(i.with_args({**i.args, **operands}))
    return parts


def fixed(a: Access, value: Values) -> Access:
    """The access with a scalar run-time index filled in."""
    if a.dynamic is None or a.dynamic.kind != "scalar":
        return a
    offset = a.offset + value(a.dynamic) * a.dynamic.stride
    return Access(a.storage, offset, a.shape, a.strides, a.dtype)


def permuted(a: Access, axes: tuple[int, ...]) -> Access:
    """The access with its dimensions in another order."""
    shape, strides = (tuple(of[d] for d in axes) for of in (a.shape, a.strides))
    return Access(a.storage, a.offset, shape, strides, a.dtype, a.dynamic)


def _inside(block: Block, value: Values) -> np.ndarray:
    """Which rows are inside in all operands, in the shape of the block's grid."""
    found = np.ones(block.grid, bool)
    for a in block.operands.values():
        if a.dynamic is not None and a.dynamic.kind == "scalar":
            low, high = _reach(a, block)
            found &= _addressed(a, value(a.dynamic), low, high)
            if a.dynamic.within is not None:
                found &= _in_dimension(a, a.dynamic.within, value(a.dynamic), low, high)
    return found


def _reach(a: Access, block: Block) -> tuple[np.ndarray, np.ndarray]:
    """First and last element of every row, from where the storage (on chip: partition) begins."""
    row = a.partition_stride if a.region.on_chip else 0
    steps = [0 if row and s % row == 0 else s for s in a.strides]
    start = np.full((1,) * len(block.grid), a.offset % row if row else a.offset, np.int64)
    for d, n in enumerate(block.grid):
        places = np.arange(n, dtype=np.int64) * steps[d]
        start = start + places.reshape([n if k == d else 1 for k in range(len(block.grid))])
    ends = start + steps[-1] * (block.row - 1)
    return np.minimum(start, ends), np.maximum(start, ends)


def _addressed(a: Access, index: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    assert a.dynamic is not None
    moved = index * a.dynamic.stride
    return np.asarray((low >= -moved) & (high < _capacity(a) - moved))


def _capacity(a: Access) -> int:
    """Elements of the storage, on chip of a partition."""
    return a.storage.partition_bytes // a.dtype.itemsize


def _in_dimension(
    a: Access, places: tuple[int, int, int], index: int, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    assert a.dynamic is not None
    origin, size, period = places
    if a.region.on_chip:
        origin %= a.partition_stride
    first, wraps = low - origin, np.zeros(low.shape, bool)
    if period > 0:
        first %= period
        wraps = first + (high - low) >= period
    unit = max(abs(a.dynamic.stride), 1)
    last = (first + (high - low)) // unit
    return np.where(wraps, index == 0, (first // unit >= -index) & (last < size - index))


def _boxes(found: np.ndarray) -> Iterator[Ranges]:
    """Boxes that together hold every True and no False."""
    if not found.any():
        return
    if found.all():
        yield tuple((0, n) for n in found.shape)
        return
    if found.ndim == 1:
        edges = np.flatnonzero(np.diff(found.astype(np.int8), prepend=0, append=0)).tolist()
        yield from (((low, high),) for low, high in zip(edges[::2], edges[1::2], strict=True))
        return
    flat = found.reshape(len(found), -1)
    changes = np.flatnonzero((flat[1:] != flat[:-1]).any(axis=1)) + 1
    edges = [0, *changes.tolist(), len(found)]
    for low, high in pairwise(edges):
        for box in _boxes(found[low]):
            yield ((low, high), *box)


# ---- what to say of them ------------------------------------------------------------------------


def first_outside(blocks: Sequence[Block], value: Values) -> str:
    """The first row that isn't inside, "" if all are."""
    before = 0
    total = sum(prod(block.grid) for block in blocks)
    for block in blocks:
        found = _inside(block, value).reshape(-1)
        if found.all():
            before += found.size
            continue
        n = int(np.argmin(found))
        for name, a in block.operands.items():
            text = _outside(name, a, block, n, value)
            if text:
                return f"row {before + n} of the transfer's {total} {text}"
    return ""


def first_beyond(blocks: Sequence[Block], dynamic: Dynamic, index: int) -> str:
    """The first row that leaves its dimension's extent inside the tensor, "" if none does."""
    if dynamic.extent is None:
        return ""
    for block in blocks:
        for name, a in block.operands.items():
            if a.dynamic is not dynamic:
                continue
            low, high = _reach(a, block)
            stays = _in_dimension(a, dynamic.extent, index, low, high)
            beyond = np.broadcast_to(_addressed(a, index, low, high) & ~stays, block.grid)
            if beyond.any():
                n, moved = int(np.argmax(beyond)), index * dynamic.stride
                first, last = (int(np.broadcast_to(x, block.grid).flat[n]) for x in (low, high))
                return (
                    f"a row would be elements [{first + moved}, {last + moved + 1}) of {name}, not "
                    f"among these {dynamic.extent[1]} places but among their neighbours"
                )
    return ""


def _outside(name: str, a: Access, block: Block, n: int, value: Values) -> str:
    if a.dynamic is None or a.dynamic.kind != "scalar":
        return ""
    index = value(a.dynamic)
    low, high = (int(np.broadcast_to(x, block.grid).flat[n]) for x in _reach(a, block))
    ends = np.array(low), np.array(high)
    moved = index * a.dynamic.stride
    if a.dynamic.within is not None and not _in_dimension(a, a.dynamic.within, index, *ends):
        size = a.dynamic.within[1]
        return f"would leave dimension {a.dynamic.dim} of {name}, which has {size} places"
    if not _addressed(a, index, *ends):
        where = "a partition of " if a.region.on_chip else ""
        return (
            f"would be elements [{low + moved}, {high + moved + 1}) of {where}{name}, which has "
            f"{_capacity(a)}"
        )
    return ""
