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

Box: TypeAlias = tuple[int, ...]
_Ranges: TypeAlias = tuple[int, int, int, int]
_Form: TypeAlias = tuple[tuple[int, ...], tuple[int, ...] | None]  # sizes and base
_Pattern: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]  # shape, strides, element size


class Territory:
    """How the bytes of storages are divided into box coordinates; those of one form share theirs.

    Attributes:
        strides: bytes per step of each dimension, outermost first; the last is 1.
        sizes: extent of each dimension.
        base: added to the coordinates (where a placed storage lies in its memory).
        whole: the box of the whole storage.
    """

    __slots__ = ("_extents", "base", "sizes", "strides", "whole")

    def __init__(self, sizes: tuple[int, ...], base: tuple[int, ...] | None = None) -> None:
        self.sizes = sizes
        self.base = base
        strides = [1]
        for size in reversed(sizes[1:]):
            strides.append(strides[-1] * size)
        self.strides = tuple(reversed(strides))
        self.whole = self._at([0] * len(sizes), [n - 1 for n in sizes])
        self._extents: dict[_Pattern, tuple[int, list[int]]] = {}

    def _at(self, lows: Sequence[int], highs: Sequence[int]) -> Box:
        box: list[int] = []
        for low, high in zip(lows, highs, strict=True):
            box += (low, high + 1)
        if self.base is not None:
            for d, move in enumerate(self.base):
                box[2 * d] += move
                box[2 * d + 1] += move
        return tuple(box)

    def fixed(self, a: Access) -> Box:
        """The box of an access, its run-time index left out."""
        size = a.dtype.itemsize
        pattern = (a.shape, a.strides, size)
        cached = self._extents.get(pattern)
        if cached is None:
            back, steps = _steps(a)
            cached = self._extents[pattern] = back, self._reach(steps, size)
        back, extents = cached
        return self._from(a.offset * size - back, extents)

    def box(self, low: int, steps: Iterable[tuple[int, int]], width: int) -> Box:
        """The box of `width` bytes at byte `low`, repeated by `(bytes, extra repeats)` steps."""
        return self._from(low, self._reach(steps, width))

    def _reach(self, steps: Iterable[tuple[int, int]], width: int) -> list[int]:
        """How far each dimension goes from where it begins."""
        extents = [0] * len(self.sizes)
        extents[-1] = width - 1
        for step, repeats in steps:
            for d, stride in enumerate(self.strides):
                times, step = divmod(step, stride)
                extents[d] += times * repeats
                if not step:
                    break
        return extents

    def _from(self, low: int, extents: Sequence[int]) -> Box:
        if len(extents) == 1 and self.base is None:
            return (low, low + extents[0] + 1)
        lows = []
        for stride in self.strides:
            index, low = divmod(low, stride)
            lows.append(index)
        return self._carried(lows, extents)

    def _carried(self, lows: list[int], extents: Sequence[int]) -> Box:
        """Where a dimension overflows, all of it is touched and the one outside moves on."""
        highs = [low + extent for low, extent in zip(lows, extents, strict=True)]
        for d in range(len(lows) - 1, 0, -1):
            if highs[d] >= self.sizes[d]:
                highs[d - 1] += highs[d] // self.sizes[d]
                lows[d], highs[d] = 0, self.sizes[d] - 1
        return self._at(lows, highs)


def territories(storages: Sequence[Storage]) -> tuple[list[int], list[Territory]]:
    """By number of a storage, its key and its territory.

    Storages with equal keys hold the same bytes, and their boxes can be compared. Addresses count
    where the kernel gave them: the allocator packs tightly, without an eye on what could overlap in
    time.
    """
    groups = _overlapping([s for s in storages if s.region.on_chip and s.address and s.placed])
    keys, found = [], []
    cache: dict[_Form, Territory] = {}
    for s in storages:
        form: _Form = (_dimensions(s), None)
        if s.number in groups:
            form = ((s.partitions, s.partition_bytes), s.address)
        territory = cache.get(form)
        if territory is None:
            territory = cache[form] = Territory(*form)
        keys.append(groups.get(s.number, s.number))
        found.append(territory)
    return keys, found


def _dimensions(s: Storage) -> tuple[int, ...]:
    sizes = [n for n in s.shape[:-1] if n != 1]
    return (*sizes, s.shape[-1] * s.dtype.itemsize)


def _overlapping(placed: list[Storage]) -> dict[int, int]:
    """For every storage that overlaps another one in memory, the least number of its group.

    Storages in the same place are one before anything is compared. The rest is gone through from
    low bytes to high ones; for each partition it is enough to know which storage so far reaches
    farthest: others that reach as far as the next one begins overlap that one and are of its group.
    """
    pairs: list[tuple[int, int]] = []
    places: dict[tuple[str, _Ranges], int] = {}
    for s in placed:
        first = places.setdefault((s.region.value, _ranges(s)), s.number)
        if first != s.number:
            pairs.append((first, s.number))
    below = max((ranges[1] for _, ranges in places), default=0)
    for region in sorted({region for region, _ in places}):
        here = [(ranges, n) for (name, ranges), n in places.items() if name == region]
        reach, holder = np.zeros(below, np.int64), np.zeros(below, np.int64)
        for (start, stop, low, high), n in sorted(here, key=lambda item: item[0][2:]):
            for other in set(holder[start:stop][reach[start:stop] > low].tolist()):
                pairs.append((other, n))
            farther = reach[start:stop] < high
            holder[start:stop][farther] = n
            reach[start:stop][farther] = high
    return joined(pairs)


def joined(groups: Iterable[Sequence[int]]) -> dict[int, int]:
    """For each number in groups the least of all that groups connect with it."""
    parent: dict[int, int] = {}

    def root(n: int) -> int:
        while parent.setdefault(n, n) != n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    for first, *rest in groups:
        for n in (first, *rest):
            older, younger = sorted((root(first), root(n)))
            parent[younger] = older
    return {n: root(n) for n in parent}


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
    storage = a.storage
    if a.dynamic is not None:
        size = a.dtype.itemsize
        back, steps = _steps(a)
        shift, free = _moved(a, a.dynamic, registers)
        steps += [(step * size, repeats) for step, repeats in free]
        return t.box((a.offset + shift) * size - back, steps, size)
    if (
        a.offset == 0
        and a.shape == storage.shape
        and a.strides == storage.strides
        and (a.dtype is storage.dtype or a.dtype.itemsize == storage.dtype.itemsize)
    ):
        return t.whole
    return t.fixed(a)


def _steps(a: Access) -> tuple[int, list[tuple[int, int]]]:
    """Bytes that an access goes back from its offset, and its steps forward from there."""
    size, back = a.dtype.itemsize, 0
    steps = []
    for n, stride in zip(a.shape, a.strides, strict=True):
        if n > 1 and stride:
            step = stride * size
            if step < 0:
                back -= step * (n - 1)
                step = -step
            steps.append((step, n - 1))
    return back, steps


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
