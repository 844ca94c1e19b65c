"""Room on chip in simulated time: a tensor that wasn't placed needs bytes before it is written.

A compiler gives tensors their addresses knowing what is alive when, and so decides how far loads
run ahead. Here room is given in the order in which the kernel first touches its tensors, and taken
back when the last instruction that touches one is over. Invariant: that can't deadlock where the
kernel's own order fits, because whatever comes earlier in it has its room already. Where nothing
else can go on, the next one gets room that isn't there: spilled.

Doesn't model addresses: a tensor may lie in several pieces. Tensors that the kernel placed are
reserved throughout; their conflicts are edges of the order graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from nki_dist.arch import Arch
from nki_dist.program import MemoryRegion, Storage
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.rewrite import Plan


class Room:
    """One memory."""

    def __init__(self, capacity: int) -> None:
        self.free = capacity
        self.line: deque[int] = deque()  # storages in the order of their first use


class Rooms:
    """SBUF and PSUM of one core."""

    def __init__(self, graph: OrderGraph, plan: Plan, arch: Arch) -> None:
        self.size: dict[int, int] = {}
        self.left: dict[int, int] = {}  # accesses that aren't over
        self.touched: list[tuple[int, ...]] = []  # by ordinal -> storages
        self.waiting: dict[int, list[int]] = {}  # storage -> positions that write it
        self.graph = graph
        self.rooms: dict[MemoryRegion, Room] = {}
        self.room_of: dict[int, Room] = {}
        self.of: dict[int, tuple[int, ...]] = {}
        self.spilled = 0
        self.until: dict[int, float] = {}  # storage -> end of its last access so far
        self.last: dict[int, int] = {}  # and whose that is
        if not plan.reorders:
            return
        storages = graph.program.storages
        quad = arch.partition_quadrant
        rows = arch.partitions // quad
        capacity = {
            MemoryRegion.sbuf: arch.sbuf_usable_bytes * rows,
            MemoryRegion.psum: arch.psum_usable_banks * arch.psum_bank_bytes * rows,
        }
        for region, most in capacity.items():
            placed = max((s.address[1] + s.partition_bytes for s in storages if s.region is region and s.placed and s.address and s.first >= 0), default=0)
            self.rooms[region] = Room(max(0, most - placed * rows))
        size = {}
        for s in storages:
            if s.region in self.rooms and not s.placed:
                size[s.number] = self._bytes(s, arch, quad)
        writes: dict[int, set[int]] = {}
        for ordinal, (r, w) in graph.tensors.items():
            both = {a.storage.number for a in (*r, *w)}
            self.of[ordinal] = tuple(sorted(n for n in both if n in size))
            writes[ordinal] = {a.storage.number for a in w}
        for at, i in enumerate(graph.executed):
            if at in plan.dropped:
                continue
            for n in self.of[i.ordinal]:
                if n not in self.left:
                    self.left[n] = 0
                    room = self.room_of[n] = self.rooms[storages[n].region]
                    room.line.append(n)
                    self.size[n] = size[n]
                    self.waiting[n] = []
                self.left[n] += 1
                if n in writes[i.ordinal]:
                    self.waiting[n].append(at)

    @staticmethod
    def _bytes(s: Storage, arch: Arch, quad: int) -> int:
        size = s.partition_bytes
        if s.region is MemoryRegion.psum:
            size = -(-size // arch.psum_bank_bytes) * arch.psum_bank_bytes if size > arch.psum_bank_bytes // 2 else size
        return -(-size // 4) * 4 * -(-s.partitions // quad)

    def writers(self) -> Iterator[int]:
        """Positions that wait for room, once for each tensor."""
        for positions in self.waiting.values():
            yield from positions

    def given(self) -> Iterator[int]:
        """Give room to whoever is next in line; the tensors that got it."""
        for room in self.rooms.values():
            while room.line and self.size[room.line[0]] <= room.free:
                n = room.line.popleft()
                room.free -= self.size[n]
                yield n

    def force(self) -> int:
        """Give room that isn't there to the first in any line; -1 if nobody waits."""
        heads = [room for room in self.rooms.values() if room.line]
        if not heads:
            return -1
        first = min(heads, key=lambda room: self.waiting[room.line[0]][0] if self.waiting[room.line[0]] else -1)
        n = first.line.popleft()
        self.spilled += self.size[n]
        first.free -= self.size[n]
        return n

    def over(self, ordinal: int, at: int, end: float) -> list[int]:
        """An execution of an instruction has its end; the tensors that nobody needs after it."""
        dead = []
        for n in self.of[ordinal]:
            self.left[n] -= 1
            if end >= self.until.get(n, -1.0):
                self.until[n], self.last[n] = end, at
            if not self.left[n]:
                dead.append(n)
        return dead

    def leave(self, n: int) -> None:
        self.room_of[n].free += self.size[n]
