"""Makes tensors wait for bytes of SBUF and PSUM in simulated time, if the kernel didn't place them.

A compiler gives tensors their addresses knowing what is alive when, and so decides how far loads
run ahead. Here room is given in the order in which the kernel first touches its tensors, piece by
piece (`timing.pieces`), and taken back when the last instruction that touches one is over; whoever
is next learns that by a semaphore, but in kernels of Beta 1. In SBUF, the tensors of each line of
the kernel have room of their own if that fits (`compiled.rotation`).

What is spilled is saved before anybody has its room, and comes back when that is over.

Invariant: that can't deadlock where the kernel's own order fits (what doesn't fit was spilled
before, see `compiled.spill`), because whatever comes earlier in that order has its room already.
Where nothing else can go on all the same, the next one of each core gets room that isn't there.

Doesn't model: what is next to what. A tensor may lie in several pieces; lines of the kernel whose
tensors are never in use together have different addresses. Tensors that the kernel placed are
reserved throughout; their conflicts are edges of the order graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import inf

from nki_dist.arch import Arch
from nki_dist.program import MemoryRegion, Storage
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.compiled.rotation import Stay, shares
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.pieces import Pieces, pieces


def usable_bytes(arch: Arch) -> dict[MemoryRegion, int]:
    """What each memory on chip has for tensors, per partition."""
    psum = arch.psum_usable_banks * arch.psum_bank_bytes
    return {MemoryRegion.sbuf: arch.sbuf_usable_bytes, MemoryRegion.psum: psum}


def capacities(storages: Sequence[Storage], arch: Arch) -> dict[MemoryRegion, int]:
    """Bytes times quadrants of partitions that each memory has for tensors nobody placed."""
    left = usable_bytes(arch)
    for region, most in usable_bytes(arch).items():
        for s in storages:
            if s.placed and s.region is region and s.first >= 0 and s.address is not None:
                left[region] = max(0, min(left[region], most - s.address[1] - s.partition_bytes))
    rows = arch.partitions // arch.partition_quadrant
    return {region: most * rows for region, most in left.items()}


def needed_bytes(s: Storage, arch: Arch) -> int:
    """Bytes times quadrants that a tensor needs; in PSUM, more than half a bank counts as whole."""
    size = s.partition_bytes
    if s.region is MemoryRegion.psum and size > arch.psum_bank_bytes // 2:
        size = -(-size // arch.psum_bank_bytes) * arch.psum_bank_bytes
    return (
        -(-size // arch.sbuf_min_align)
        * arch.sbuf_min_align
        * -(-s.partitions // arch.partition_quadrant)
    )


class Share:
    """Bytes that some stays on chip share: what is free, and those that have none yet, in order."""

    def __init__(self, capacity: int) -> None:
        self.free = capacity
        self.line: deque[int] = deque()


class Capacity:
    """SBUF and PSUM of one core. A piece that is spilled counts anew after every reload.

    Attributes:
        stays: of pieces that anybody waits for room of, by number.
        parts: by position, the stays that it is part of; empty if there is room for everything.
    """

    def __init__(self, graph: OrderGraph, plan: Plan, arch: Arch) -> None:
        self.stays: list[Stay] = []
        self.parts: list[tuple[int, ...]] = []
        self._share: list[Share] = []  # by number of a stay
        self._shares: list[Share] = []
        self._freed: list[Share] = []  # those that may have room for more
        if plan.reorders:
            self._furnish(graph, plan, arch)

    def _furnish(self, graph: OrderGraph, plan: Plan, arch: Arch) -> None:
        storages = graph.program.storages
        size: dict[int, int] = {}
        capacity = {}
        for region, n in capacities(storages, arch).items():
            here = [s for s in storages if s.region is region and not s.placed]
            needed = {s.number: needed_bytes(s, arch) for s in here}
            if sum(needed.values()) > n:  # else nobody ever waits
                capacity[region] = n
                size.update(needed)
        if not size:
            return
        self._find_stays(plan, size, pieces(graph, plan, size))
        self._share = [Share(0)] * len(self.stays)  # until they are opened
        most = 2 if plan.close else inf
        for region, n in capacity.items():
            numbers = [k for k, stay in enumerate(self.stays) if stay.storage.region is region]
            turns = region is MemoryRegion.sbuf and bool(numbers)
            for share, sharing in shares(self.stays, numbers, n, most) if turns else [(n, numbers)]:
                self._open(share, sharing)

    def _find_stays(self, plan: Plan, size: Mapping[int, int], what: Pieces) -> None:
        """When each piece is on chip, and who waits for it to be.

        Args:
            size: of the tensors, by number.
        """
        sizes = [what.part(n, size[s.number]) for n, s in enumerate(what.storages)]
        now = [-1] * len(sizes)  # by piece, the number of its stay
        for at, touched in enumerate(what.touched):
            for n in touched:
                storage, span = what.storages[n], what.spans[n]
                saved = plan.renewed.get((storage.number, span[0], at)) if plan.renewed else None
                if saved is not None or now[n] < 0:
                    stay = Stay(storage, span, sizes[n], at, at)
                    if saved is not None:
                        stay.reload = what.part(n, storage.nbytes)
                        stay.waiting.append(at)
                    if now[n] >= 0:
                        stay.before = self.stays[now[n]]
                        stay.before.save = saved or 0
                    now[n] = len(self.stays)
                    self.stays.append(stay)
                stay = self.stays[now[n]]
                stay.last = at
                stay.uses += 1
            self.parts.append(tuple(now[n] for n in touched))
            for n in what.written[at]:
                waiting = self.stays[now[n]].waiting
                if not waiting or waiting[-1] != at:
                    waiting.append(at)

    def _open(self, capacity: int, sharing: Sequence[int]) -> None:
        share = Share(capacity)
        share.line.extend(sharing)
        free, opens = capacity, -1
        there: list[tuple[int, int]] = []  # last use and size of those that have room
        for number in sharing:
            stay = self.stays[number]
            while free < stay.size and there:
                last, size = heappop(there)
                opens, free = max(opens, min(last, stay.first - 1)), free + size
            free -= stay.size
            heappush(there, (stay.last, stay.size))
            self._share[number], stay.opens = share, opens
        self._shares.append(share)
        self._freed.append(share)

    def given(self) -> Iterator[int]:
        """Give room to whoever is next in line; the stays that got it."""
        while self._freed:
            share = self._freed.pop()
            while (stay := self._next(share)) and stay.size <= share.free:
                share.free -= stay.size
                yield share.line.popleft()

    def force(self) -> int:
        """Give room that isn't there to the first in any line; -1 if nobody waits."""
        heads = [
            (stay.waiting[:1], n)
            for n, share in enumerate(self._shares)
            if (stay := self._next(share))
        ]
        if not heads:
            return -1
        share = self._shares[min(heads)[1]]
        number = share.line.popleft()
        share.free -= self.stays[number].size
        return number

    def _next(self, share: Share) -> Stay | None:
        """The first in line, unless what comes back for it hasn't left."""
        stay = self.stays[share.line[0]] if share.line else None
        return None if stay and stay.before and not stay.before.gone else stay

    def over(self, at: int, end: float, done: float) -> list[int]:
        """An instruction has its end, and its result a time (what is saved waits for that).

        Returns the stays that are over then, if anybody waits for room.
        """
        ended = []
        for number in self.parts[at]:
            stay = self.stays[number]
            stay.uses -= 1
            until = done if stay.save else end
            if until >= stay.until:
                stay.until, stay.by = until, at
            if not stay.uses and self._share[number].line:
                ended.append(number)
        return ended

    def leave(self, number: int) -> None:
        share = self._share[number]
        share.free += self.stays[number].size
        self.stays[number].gone = True
        self._freed.append(share)
