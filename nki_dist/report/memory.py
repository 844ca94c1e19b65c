"""SBUF and PSUM over time: which tensor is alive when, as boxes.

A tensor lives from the start of the first instruction that touches it to the result of the last. A
box is as high as the tensor's bytes per partition. Its place is the kernel's where it gave an
address; elsewhere the lowest that is free, because simulated time gives room, not addresses (see
`timing.room`). Doesn't show: spills, which leave and come back; rounds of a dynamic loop, which use
a tensor of its body anew.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

from nki_dist.arch import Arch
from nki_dist.program import MemoryRegion, Storage
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
        peak: the most bytes per partition that tensors had at once.
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
    capacity = {
        MemoryRegion.sbuf: arch.sbuf_usable_bytes,
        MemoryRegion.psum: arch.psum_usable_banks * arch.psum_bank_bytes,
    }
    found = []
    for region, most in capacity.items():
        lives = [
            (start, end, s)
            for s, (start, end) in spans.items()
            if s.region is region and end > start
        ]
        lives.sort(key=lambda life: (life[0], life[2].number))
        boxes = _packed(lives, arch)
        steps = _steps(boxes)
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
            if s not in last or core.done[at] > last[s]:
                last[s] = core.done[at]
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


def _steps(boxes: Sequence[Box]) -> list[tuple[float, int]]:
    """How many bytes are taken from when on; what shares addresses counts twice."""
    changes: dict[float, int] = {}
    for b in boxes:
        changes[b.start] = changes.get(b.start, 0) + b.size
        changes[b.end] = changes.get(b.end, 0) - b.size
    steps, now = [], 0
    for time in sorted(changes):
        now += changes[time]
        steps.append((time, now))
    return steps
