"""Room on chip in simulated time: a tensor that wasn't placed needs bytes before it is written.

A compiler gives tensors their addresses knowing what is alive when, and so decides how far loads
run ahead. Here room is given in the order in which the kernel first touches its tensors, piece by
piece (`timing.pieces`), and taken back when the last instruction that touches one is over; whoever
is next learns that by a semaphore, but in kernels of Beta 1. In SBUF, the tensors of each line of
the kernel have room of their own if that fits (`compiled.rotation`).
Invariant: that can't deadlock
where the kernel's own order fits (what doesn't fit was spilled before, see `compiled.spill`),
because whatever comes earlier in that order has its room already. Where nothing else can go on all
the same, the next one of each core gets room that isn't there.

Doesn't model: what is next to what. A tensor may lie in several pieces; lines of the kernel whose
tensors are never in use together have different addresses. Tensors that the kernel placed are
reserved throughout; their conflicts are edges of the order graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush

from nki_dist.arch import Arch
from nki_dist.program import MemoryRegion, Storage
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.compiled.rotation import Stay, rooms
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.pieces import Pieces, pieces


def capacities(storages: Sequence[Storage], arch: Arch) -> dict[MemoryRegion, int]:
    """Bytes times quadrants of partitions that each memory has for tensors nobody placed."""
    rows = arch.partitions // arch.partition_quadrant
    found = {
        MemoryRegion.sbuf: arch.sbuf_usable_bytes * rows,
        MemoryRegion.psum: arch.psum_usable_banks * arch.psum_bank_bytes * rows,
    }
    for s in storages:
        if s.placed and s.region in found and s.first >= 0 and s.address is not None:
            end = (s.address[1] + s.partition_bytes) * rows
            most = arch.sbuf_usable_bytes if s.region is MemoryRegion.sbuf else _psum(arch)
            found[s.region] = max(0, min(found[s.region], most * rows - end))
    return found


def _psum(arch: Arch) -> int:
    return arch.psum_usable_banks * arch.psum_bank_bytes


def room_of(s: Storage, arch: Arch) -> int:
    """Bytes times quadrants that a tensor needs; in PSUM, more than half a bank counts as whole."""
    size = s.partition_bytes
    if s.region is MemoryRegion.psum and size > arch.psum_bank_bytes // 2:
        size = -(-size // arch.psum_bank_bytes) * arch.psum_bank_bytes
    return (
        -(-size // arch.sbuf_min_align)
        * arch.sbuf_min_align
        * -(-s.partitions // arch.partition_quadrant)
    )


class Room:
    """Bytes that some stays on chip share: what is free, and those that have none yet, in order."""

    def __init__(self, capacity: int) -> None:
        self.free = capacity
        self.line: deque[int] = deque()


class Rooms:
    """SBUF and PSUM of one core. A piece that is spilled counts anew after every reload.

    Attributes:
        waiting: by number of a stay on chip, the positions that can't begin before it has room.
        reload: bytes that come back from HBM when it has room.
        save: bytes that go to HBM before its room is free.
        opens: the position in the order written after which it has room, -1 from the beginning.
        until, last: end of the last access so far, and whose that is.
        stays: by position, the stays that it is part of; empty if there is room for everything.
    """

    def __init__(self, graph: OrderGraph, plan: Plan, arch: Arch) -> None:
        self.waiting: list[list[int]] = []
        self.reload: list[int] = []
        self.save: list[int] = []
        self.opens: list[int] = []
        self.until: list[float] = []
        self.last: list[int] = []
        self.stays: list[tuple[int, ...]] = []
        self._left: list[int] = []
        self._before: list[int] = []  # the stay of what is reloaded, or -1
        self._size: list[int] = []
        self._room: list[Room] = []
        self._rooms: list[Room] = []
        self._gone: set[int] = set()  # stays
        self._freed: list[Room] = []  # those that may have room for more
        if plan.reorders:
            self._furnish(graph, plan, arch)

    def _furnish(self, graph: OrderGraph, plan: Plan, arch: Arch) -> None:
        storages = graph.program.storages
        size: dict[int, int] = {}
        capacity = {}
        for region, n in capacities(storages, arch).items():
            here = [s for s in storages if s.region is region and not s.placed]
            needed = {s.number: room_of(s, arch) for s in here}
            if sum(needed.values()) > n:  # else nobody ever waits
                capacity[region] = n
                size.update(needed)
        if not size:
            return
        stays = self._find_stays(plan, size, pieces(graph, plan, size))
        self._size = [stay.size for stay in stays]
        self.opens = [-1] * len(stays)
        self._room = [Room(0)] * len(stays)  # until they are opened
        for region, n in capacity.items():
            numbers = [k for k, stay in enumerate(stays) if stay.storage.region is region]
            turns = region is MemoryRegion.sbuf and bool(numbers)
            for room, sharing in rooms(stays, numbers, n) if turns else [(n, numbers)]:
                self._open(room, sharing, stays)

    def _find_stays(self, plan: Plan, size: Mapping[int, int], what: Pieces) -> list[Stay]:
        """When each piece is on chip, and who waits for it to be; fills `stays`, `waiting`.

        Args:
            size: of the tensors, by number.
        """
        sizes = [what.part(n, size[s.number]) for n, s in enumerate(what.storages)]
        found: list[Stay] = []
        stay = [-1] * len(sizes)  # by piece
        for at, numbers in enumerate(what.touched):
            if not numbers:
                self.stays.append(())
                continue
            part = []
            for n in numbers:
                storage, span = what.storages[n], what.spans[n]
                saved = plan.renewed.get((storage.number, span[0], at), -1) if plan.renewed else -1
                renewed = saved >= 0
                if renewed or stay[n] < 0:
                    if saved > 0 and stay[n] >= 0:
                        self.save[stay[n]] = saved
                    self._before.append(stay[n])
                    stay[n] = len(found)
                    found.append(Stay(storage, span, sizes[n], at, at))
                    self._left.append(0)
                    self.save.append(0)
                    self.reload.append(what.part(n, storage.nbytes) if renewed else 0)
                    self.until.append(-1.0)
                    self.last.append(-1)
                    self.waiting.append([at] if renewed else [])
                number = stay[n]
                found[number].last = at
                self._left[number] += 1
                part.append(number)
            self.stays.append(tuple(part))
            for n in what.written[at]:
                waiting = self.waiting[stay[n]]
                if not waiting or waiting[-1] != at:
                    waiting.append(at)
        return found

    def _open(self, capacity: int, sharing: Sequence[int], stays: Sequence[Stay]) -> None:
        room = Room(capacity)
        room.line.extend(sharing)
        free, opens = capacity, -1
        there: list[tuple[int, int]] = []  # last use and size of those that have room
        for number in sharing:
            stay = stays[number]
            while free < stay.size and there:
                last, size = heappop(there)
                opens, free = max(opens, min(last, stay.first - 1)), free + size
            free -= stay.size
            heappush(there, (stay.last, stay.size))
            self._room[number], self.opens[number] = room, opens
        self._rooms.append(room)
        self._freed.append(room)

    def waiters(self) -> Iterator[int]:
        """Positions that wait for room, once for each stay."""
        for positions in self.waiting:
            yield from positions

    def given(self) -> Iterator[int]:
        """Give room to whoever is next in line; the stays that got it."""
        while self._freed:
            room = self._freed.pop()
            while self._next(room) and self._size[room.line[0]] <= room.free:
                number = room.line.popleft()
                room.free -= self._size[number]
                yield number

    def force(self) -> int:
        """Give room that isn't there to the first in any line; -1 if nobody waits."""
        heads = [room for room in self._rooms if self._next(room)]
        if not heads:
            return -1
        room = min(heads, key=lambda r: self.waiting[r.line[0]][:1])
        number = room.line.popleft()
        room.free -= self._size[number]
        return number

    def _next(self, room: Room) -> bool:
        """Whether somebody is in line whose bytes, if they come back, have left."""
        return bool(room.line) and (
            self._before[room.line[0]] < 0 or self._before[room.line[0]] in self._gone
        )

    def over(self, at: int, end: float, done: float) -> list[int]:
        """An instruction has its end, and its result a time (what is saved waits for that).

        Returns the stays that are over then, if anybody waits for room.
        """
        ended = []
        for number in self.stays[at]:
            self._left[number] -= 1
            until = done if self.save[number] else end
            if until >= self.until[number]:
                self.until[number], self.last[number] = until, at
            if not self._left[number] and self._room[number].line:
                ended.append(number)
        return ended

    def leave(self, number: int) -> None:
        room = self._room[number]
        self._gone.add(number)
        room.free += self._size[number]
        self._freed.append(room)
