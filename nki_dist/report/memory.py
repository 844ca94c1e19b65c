"""SBUF and PSUM over time: which tensor is alive when, as boxes.

A tensor lives from the start of the first instruction that touches it to the end of the last, when
`timing.capacity` gives its room to the next. A
box is as high as the tensor's bytes per partition. Its place is the kernel's where it gave an
address; elsewhere the lowest that is free, because simulated time gives room, not addresses (see
`timing.capacity`). Doesn't show: spills, which leave and come back; rounds of a dynamic loop, which
use a tensor of its body anew.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np

from nki_dist.arch import Arch
from nki_dist.program import Storage
from nki_dist.timing.capacity import usable_bytes
from nki_dist.timing.timeline import CoreTimeline

MOST: Final = 60_000  # boxes of a page


class Box(NamedTuple):
    """A tensor: when it lives (ns), and the bytes of each partition that it takes."""

    storage: Storage
    start: float
    end: float
    low: int
    size: int


@dataclass(frozen=True)
class Occupation:
    """One memory of one core.

    Attributes:
        capacity: usable bytes of a partition.
        boxes: by start.
        peak: the most bytes per partition that tensors had at once, counted as the compiler does:
            narrow ones for the quadrants of partitions that they need, bytes that the kernel gave
            to several once. More than `capacity` where some were spilled for a while.
        steps: (ns, bytes per partition from then on).
    """

    core: int
    region: str
    capacity: int
    boxes: list[Box]
    peak: int
    steps: list[tuple[float, int]]


def occupations(number: int, core: CoreTimeline, arch: Arch) -> list[Occupation]:
    """SBUF and PSUM of a core."""
    spans = _spans(core)
    found = []
    for region, most in usable_bytes(arch).items():
        lives = [
            (start, end, s)
            for s, (start, end) in spans.items()
            if s.region is region and end > start
        ]
        lives.sort(key=lambda life: (life[0], life[2].number))
        boxes = _packed(lives, arch)
        steps = _steps(boxes, most, arch)
        peak = max((n for _, n in steps), default=0)
        found.append(Occupation(number, region.value, most, boxes, peak, steps))
    return found


def _spans(core: CoreTimeline) -> dict[Storage, tuple[float, float]]:
    """When each on-chip tensor is first and last touched."""
    touched: dict[int, list[Storage]] = {}
    first: dict[Storage, float] = {}
    last: dict[Storage, float] = {}
    for at, i in enumerate(core.graph.executed):
        if at in core.dropped:
            continue
        storages = touched.get(i.ordinal)
        if storages is None:
            reads, writes = core.graph.tensors[i.ordinal]
            both = {a.storage.number: a.storage for a in (*reads, *writes)}
            storages = touched[i.ordinal] = [s for s in both.values() if s.region.on_chip]
        for s in storages:
            if s not in first or core.start[at] < first[s]:
                first[s] = core.start[at]
            if s not in last or core.end[at] > last[s]:
                last[s] = core.end[at]
    return {s: (first[s], last[s]) for s in first}


def _size(s: Storage, arch: Arch) -> int:
    step = arch.sbuf_min_align
    return -(-s.partition_bytes // step) * step


def _packed(lives: Sequence[tuple[float, float, Storage]], arch: Arch) -> list[Box]:
    """Boxes, each at its address or as low as it fits beside those that live when it begins."""
    boxes = []
    taken: list[tuple[int, int]] = []  # (low, high) of what is alive, by low
    ends: list[tuple[float, int, int]] = []
    for start, end, s in lives:
        while ends and ends[0][0] <= start:
            _, low, high = heappop(ends)
            taken.remove((low, high))
        size = _size(s, arch)
        low = s.address[1] if s.placed and s.address is not None else _gap(taken, size)
        insort(taken, (low, low + size))
        heappush(ends, (end, low, low + size))
        boxes.append(Box(s, start, end, low, size))
    return boxes


def _gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The lowest place of `size` free bytes."""
    reach = 0
    for low, high in taken:
        if low - reach >= size:
            break
        reach = max(reach, high)
    return reach


def _steps(boxes: Sequence[Box], capacity: int, arch: Arch) -> list[tuple[float, int]]:
    """How many bytes per partition are taken from when on."""
    height = arch.partition_quadrant
    quadrants, align = arch.partitions // height, arch.sbuf_min_align
    cover = np.zeros((quadrants, -(-capacity // align)), np.int32)  # by tensors that were placed
    ends, starts = [(b.end, -1, b) for b in boxes], [(b.start, 1, b) for b in boxes]
    steps, now = [], 0
    for time, change, (s, _, _, low, size) in sorted(
        [*ends, *starts], key=lambda change: change[:2]
    ):
        if s.placed and s.address is not None:
            first, rows = s.address[0], s.shape[0]
            cells = cover[
                first // height : -(-(first + rows) // height),
                low // align : -(-(low + size) // align),
            ]
            cells += change
            now += change * int(np.count_nonzero(cells == (change > 0))) * align
        else:
            now += change * size * -(-s.shape[0] // height)
        steps.append((time, -(-now // quadrants)))
    return steps
