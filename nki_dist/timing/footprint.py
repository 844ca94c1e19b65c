"""Which bytes an operand touches, as boxes that can be compared quickly.

A storage's bytes are addressed by the indices of its dimensions, the last one in bytes; a box is a
half-open range per dimension, flattened to `(low0, high0, low1, high1, ...)`. Storages that the
kernel placed at overlapping addresses share one territory, addressed by (partition, byte).

Invariant: a box holds every byte its access can touch, so that a dependency is never missed; it may
hold more (strided accesses, run-time indices whose value isn't known). Doesn't model HBM addresses:
two HBM tensors never overlap.
Follows: the access patterns of A2, "Accessing SBUF and PSUM tensors".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from nki_dist.program import Access, Dynamic, Storage, VirtualRegister
from nki_dist.program.storage import contiguous_strides

Box: TypeAlias = tuple[int, ...]
_Ranges: TypeAlias = tuple[int, int, int, int]


class Territory:
    """How the bytes of one storage are divided into box coordinates.

    Attributes:
        key: territories with equal keys hold the same bytes and can be compared.
        strides: bytes per step of each dimension, outermost first; the last is 1.
        sizes: extent of each dimension.
        base: added to the coordinates (where a placed storage lies in its memory).
        whole: the box of the whole storage.
        natural: the strides, in elements, of an access to the whole storage.
    """

    __slots__ = ("base", "key", "natural", "sizes", "strides", "whole")

    def __init__(
        self,
        key: int,
        sizes: tuple[int, ...],
        natural: tuple[int, ...] = (),
        base: tuple[int, ...] | None = None,
    ) -> None:
        self.key = key
        self.natural = natural
        self.sizes = sizes
        self.base = base
        strides = [1]
        for size in reversed(sizes[1:]):
            strides.append(strides[-1] * size)
        self.strides = tuple(reversed(strides))
        self.whole = self._at([0] * len(sizes), [n - 1 for n in sizes])

    def _at(self, lows: Sequence[int], highs: Sequence[int]) -> Box:
        base = self.base or (0,) * len(lows)
        box: list[int] = []
        for low, high, move in zip(lows, highs, base, strict=True):
            box += (low + move, high + move + 1)
        return tuple(box)

    def box(self, low: int, steps: Iterable[tuple[int, int]], width: int) -> Box:
        """The box of `width` bytes at byte `low`, repeated by `(bytes, extra repeats)` steps."""
        extents = [0] * len(self.sizes)
        extents[-1] = width - 1
        for step, repeats in steps:
            for d, stride in enumerate(self.strides):
                times, step = divmod(step, stride)
                extents[d] += times * repeats
                if not step:
                    break
        lows = []
        for stride in self.strides:
            index, low = divmod(low, stride)
            lows.append(index)
        return self._carried(lows, extents)

    def _carried(self, lows: list[int], extents: list[int]) -> Box:
        """Where a dimension overflows, all of it is touched and the one outside moves on."""
        highs = [0] * len(lows)
        for d in range(len(lows) - 1, -1, -1):
            highs[d] = lows[d] + extents[d]
            if d and highs[d] >= self.sizes[d]:
                extents[d - 1] += highs[d] // self.sizes[d]
                lows[d], highs[d] = 0, self.sizes[d] - 1
        return self._at(lows, highs)


def territories(storages: Sequence[Storage], all_addresses: bool = False) -> list[Territory]:
    """One territory per storage, by number; storages that overlap in memory share a key.

    Args:
        all_addresses: honour the addresses the allocator chose too, not only the kernel's.
    """
    groups = _overlapping(
        [s for s in storages if s.region.on_chip and s.address and (s.placed or all_addresses)]
    )
    found = []
    for s in storages:
        owner = groups.get(s.number)
        if owner is None:
            found.append(Territory(s.number, _dimensions(s), contiguous_strides(s.shape)))
        else:
            sizes = (s.partitions, s.partition_bytes)
            found.append(Territory(owner, sizes, contiguous_strides(s.shape), s.address))
    return found


def _dimensions(s: Storage) -> tuple[int, ...]:
    sizes = [n for n in s.shape[:-1] if n != 1]
    return (*sizes, s.shape[-1] * s.dtype.itemsize)


def _overlapping(placed: list[Storage]) -> dict[int, int]:
    """For every storage that overlaps another one in memory, the least number of its group.

    Storages in the same place are one before anything is compared. The rest is gone through from
    low bytes to high ones; for each partition it is enough to know which storage so far reaches
    farthest: others that reach as far as the next one begins overlap that one and are of its group.
    """
    parent = {s.number: s.number for s in placed}
    shared: set[int] = set()

    def root(n: int) -> int:
        while parent[n] != n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    def join(a: int, b: int) -> None:
        older, younger = sorted((root(a), root(b)))
        parent[younger] = older
        shared.update((a, b))

    places: dict[tuple[str, _Ranges], int] = {}
    for s in placed:
        first = places.setdefault((s.region.value, _ranges(s)), s.number)
        if first != s.number:
            join(first, s.number)
    below = max((ranges[1] for _, ranges in places), default=0)
    for region in sorted({region for region, _ in places}):
        here = [(ranges, n) for (name, ranges), n in places.items() if name == region]
        reach, holder = np.zeros(below, np.int64), np.zeros(below, np.int64)
        for (start, stop, low, high), n in sorted(here, key=lambda item: item[0][2:]):
            for other in set(holder[start:stop][reach[start:stop] > low].tolist()):
                join(other, n)
            farther = reach[start:stop] < high
            holder[start:stop][farther] = n
            reach[start:stop][farther] = high
    return {n: root(n) for n in shared}


def _ranges(s: Storage) -> _Ranges:
    """Partitions and bytes of a placed storage, half open."""
    assert s.address is not None
    partition, byte = s.address
    return partition, partition + s.partitions, byte, byte + s.partition_bytes


def footprint(a: Access, t: Territory, registers: Mapping[int, int]) -> Box:
    """The box an access touches.

    Args:
        registers: values of the registers that are known; others may hold anything in range.
    """
    size = a.dtype.itemsize
    whole = a.offset == 0 and a.dynamic is None and a.shape == a.storage.shape
    if whole and a.strides == t.natural and size == a.storage.dtype.itemsize:
        return t.whole
    low = a.offset * size
    steps = []
    for n, stride in zip(a.shape, a.strides, strict=True):
        if n > 1 and stride:
            step = stride * size
            if step < 0:
                low += step * (n - 1)
                step = -step
            steps.append((step, n - 1))
    if a.dynamic is not None:
        shift, free = _moved(a, a.dynamic, registers)
        low += shift * size
        steps += [(step * size, repeats) for step, repeats in free]
    return t.box(low, steps, size)


def _moved(
    a: Access, dynamic: Dynamic, registers: Mapping[int, int]
) -> tuple[int, list[tuple[int, int]]]:
    """Elements the run-time index moves the pattern by, or the steps it may take instead."""
    if dynamic.kind == "scalar" and isinstance(dynamic.source, VirtualRegister):
        value = registers.get(dynamic.source.number)
        if value is not None:
            return value * dynamic.stride, []
    stride, low = dynamic.stride, 0
    repeats = max(int(dynamic.limit) - 1, 0)
    if stride < 0:
        stride, low = -stride, stride * repeats
    elif dynamic.kind == "scalar" and dynamic.within is None and stride:
        back = max(a.offset, 0) // stride  # nothing but addresses bounds the index
        low, repeats = -back * stride, repeats + back
    return low, [(stride, repeats)] if stride and repeats else []


def moving_registers(accesses: Iterable[Access]) -> set[int]:
    """Numbers of the registers that decide which bytes these accesses touch."""
    found: set[int] = set()
    for a in accesses:
        if a.dynamic is not None and isinstance(a.dynamic.source, VirtualRegister):
            found.add(a.dynamic.source.number)
    return found
