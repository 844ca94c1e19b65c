"""Which instruction needs which: what reads or writes the same bytes, one of them writing.

An instruction needs those before it whose results it reads or overwrites, and those that read what
it overwrites. All follows from the declarations of functions and from places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from nki_dist.isa import INSTRUCTIONS
from nki_dist.linking.facts import accesses
from nki_dist.linking.kinds import Kind, Run
from nki_dist.linking.linked import Linked
from nki_dist.ops.operation import Operation, RegisterNumber
from nki_dist.ops.place import Place, Space
from nki_dist.program import Instruction, VirtualRegister

REGISTERS: Space = ("registers", "")
ORDER: Space = ("order", "")  # of what is seen outside, and of errors


class Touch(NamedTuple):
    """Bytes that an instruction reads or writes.

    Attributes:
        low, high: first byte, and the one after the last.
        pitch: bytes from one of its rows to the next, or 0.
        row: bytes of a row, counted from where it begins.
    """

    space: Space
    low: int
    high: int
    pitch: int
    row: int
    writes: bool

    def apart(self, other: Touch) -> bool:
        """Whether the two surely have no byte in common."""
        if self.high <= other.low or other.high <= self.low:
            return True
        pitch = self.pitch or other.pitch
        if not pitch or (other.pitch or pitch) != pitch:
            return False
        first, second = self.low % pitch, other.low % pitch
        ends = first + self._width(pitch), second + other._width(pitch)
        if max(ends) > pitch:
            return False
        return ends[0] <= second or ends[1] <= first

    def _width(self, pitch: int) -> int:
        return self.row if self.pitch else min(self.high - self.low, pitch + 1)


class Needs:
    """What the instructions of a linked program touch.

    Args:
        linked: the program.
        space_of: another name for a space: storages that share memory have one.
        own: kinds of spaces of which each lane has its own.
    """

    def __init__(
        self,
        linked: Linked,
        space_of: Callable[[Space], Space] = lambda space: space,
        own: Iterable[str] = ("scratch",),
    ) -> None:
        self._linked, self._space_of, self._own = linked, space_of, frozenset(own)
        self._kinds = [self._of_kind(kind) for kind in linked.kinds]
        self._runs: dict[int, list[Touch]] = {}

    def _of_kind(self, kind: Kind) -> list[Touch]:
        found: dict[Touch, None] = {}
        for o in kind.operations:
            for touch in touches(o):
                if touch.space[0] not in self._own:
                    found[touch] = None
        return list(found)

    def of(self, number: int) -> list[Touch]:
        """What a run touches, by its number."""
        found = self._runs.get(number)
        if found is None:
            found = self._runs[number] = self._touched(self._linked.runs[number])
        return found

    def _touched(self, run: Run) -> list[Touch]:
        found = []
        for t in self._kinds[run.kind]:
            if t.space[0] == "operand":
                space, base = run.bases[int(t.space[1])]
                t = t._replace(space=self._space_of(space), low=t.low + base, high=t.high + base)
            found.append(t)
        return found

    def of_late(self, i: Instruction) -> list[Touch]:
        """What an instruction may touch whose addresses are settled at run time."""
        spec, found = INSTRUCTIONS[i.opcode], []
        written = {a.storage.number for a in spec.writes(i)}
        for a in [*accesses(i), *spec.reads(i)]:
            s = a.storage
            space = self._space_of(("storage", s.number))
            found.append(Touch(space, 0, s.nbytes, 0, 0, s.number in written))
            if a.dynamic is not None and isinstance(a.dynamic.source, VirtualRegister):
                number = a.dynamic.source.number
                found.append(Touch(REGISTERS, number, number + 1, 0, 0, False))
        found.append(Touch(ORDER, 0, 1, 0, 0, False))
        return found


def touches(o: Operation) -> list[Touch]:
    """What an operation reads and writes."""
    found, f = [], o.function
    for n, a in enumerate(o.arguments):
        read, written = n in f.reads, n in f.writes
        if not (read or written):
            continue
        for writes in [False] * read + [True] * written:
            if type(a) is Place:
                found.append(_of_place(a, writes))
            elif isinstance(a, RegisterNumber):
                found.append(Touch(REGISTERS, int(a), int(a) + 1, 0, 0, writes))
    if f.raises or f.ordered:  # what is seen comes after all that may raise before it
        found.append(Touch(ORDER, 0, 1, 0, 0, f.ordered))
    return found


def _of_place(p: Place, writes: bool) -> Touch:
    low, high = p.span()
    pitch = max([s for n, s in zip(p.shape, p.strides) if n > 1], default=0)
    row = p.dtype.itemsize
    for n, s in zip(p.shape, p.strides):
        if s < 0:
            pitch = 0
        elif s != pitch:
            row += (n - 1) * s
    if pitch <= 0 or row >= pitch:  # rows that follow each other, or more than that can say
        pitch = row = 0
    return Touch(p.space, low, high, pitch, row, writes)


def dependences(nodes: Sequence[Sequence[Touch]]) -> list[list[int]]:
    """For each of instructions in order, those before it that it needs, but for those that follow.

    Args:
        nodes: what each touches.
    """
    written: dict[Any, list[tuple[Touch, int]]] = defaultdict(list)
    read: dict[Any, list[tuple[Touch, int]]] = defaultdict(list)
    found: list[list[int]] = []
    for k, node in enumerate(nodes):
        needs: set[int] = set()
        for t in node:
            needs.update(n for other, n in written[t.space] if not t.apart(other))
            if t.writes:
                needs.update(n for other, n in read[t.space] if not t.apart(other))
        for t in node:
            kept = written if t.writes else read
            if t.writes:  # who comes later needs this one, and with it those that it covers
                for of in (written, read):
                    left = [(o, n) for o, n in of[t.space] if not _covers(t, o)]
                    of[t.space] = left
            kept[t.space].append((t, k))
        needs.discard(k)
        found.append(sorted(needs))
    return found


def _covers(t: Touch, other: Touch) -> bool:
    if t.pitch and t[1:5] != other[1:5]:
        return False
    return t.low <= other.low and other.high <= t.high
