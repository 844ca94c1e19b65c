"""Which instruction needs which: what reads or writes the same bytes, one of them writing.

An instruction needs those before it whose results it reads or overwrites, and those that read what
it overwrites. All follows from the declarations of functions and from places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.effects import State
from nki_dist.isa.randomness import GENERATORS
from nki_dist.linking.kinds import Kind, Run
from nki_dist.linking.linked import Linked
from nki_dist.ops.operation import Operation, RegisterNumber
from nki_dist.ops.place import Place, Space
from nki_dist.program import Instruction, VirtualRegister
from nki_dist.program.walk import accesses

_new = tuple.__new__  # an instruction has several, and a program hundreds of thousands

REGISTERS: Space = ("registers", "")
ORDER: Space = ("order", "")  # of what is seen outside, and of errors
LOOKS = 30  # at what others touch, for each instruction
ALL = 1 << 62  # bytes: more than any space has


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
        _, low, high, pitch, row, _ = self
        _, other_low, other_high, other_pitch, other_row, _ = other
        if high <= other_low or other_high <= low:
            return True
        if pitch != other_pitch:
            if pitch and other_pitch:
                return False
            if pitch:
                other_row = other_high - other_low
            else:
                pitch, row = other_pitch, high - low
        if not pitch:
            return False
        first, second = low % pitch, other_low % pitch
        end, other_end = first + row, second + other_row
        if end > pitch or other_end > pitch:
            return False
        return end <= second or other_end <= first


class Needs:
    """What the instructions of a linked program touch.

    Args:
        linked: the program.
        per_lane: kinds of spaces of which each lane has its own.
    """

    def __init__(
        self,
        linked: Linked,
        per_lane: Iterable[str] = ("scratch",),
    ) -> None:
        self._linked, self._per_lane = linked, frozenset(per_lane)
        self._kinds = [self._of_kind(kind) for kind in linked.kinds]
        self._runs: dict[int, list[Touch]] = {}

    def _of_kind(self, kind: Kind) -> list[tuple[int | None, Touch]]:
        found: dict[Touch, int | None] = {}
        for o in kind.operations:
            for touch in touches(o):
                what, number = touch.space
                if what not in self._per_lane:
                    found[touch] = int(number) if what == "operand" else None
        # Whoever must wait for one that reads must wait for one that writes the same.
        return [
            (operand, touch)
            for touch, operand in found.items()
            if touch.writes or touch._replace(writes=True) not in found
        ]

    def of(self, number: int) -> list[Touch]:
        """What a run touches, by its number."""
        found = self._runs.get(number)
        if found is None:
            found = self._runs[number] = self._touched(self._linked.runs[number])
        return found

    def _touched(self, run: Run) -> list[Touch]:
        bases = run.bases
        found = []
        for operand, t in self._kinds[run.kind]:
            if operand is not None:
                _, low, high, pitch, row, writes = t
                space, base = bases[operand]
                t = _new(Touch, (space, low + base, high + base, pitch, row, writes))
            found.append(t)
        return found

    def of_late(self, i: Instruction) -> list[Touch]:
        """What an instruction may touch whose addresses are settled at run time."""
        spec, found = INSTRUCTIONS[i.opcode], []
        written = {a.storage.number for a in spec.writes(i)}
        for a in [*accesses(i), *spec.reads(i)]:
            s = a.storage
            space = ("storage", s.number)
            found.append(Touch(space, 0, s.nbytes, 0, 0, s.number in written))
            if a.dynamic is not None and isinstance(a.dynamic.source, VirtualRegister):
                number = a.dynamic.source.number
                found.append(Touch(REGISTERS, number, number + 1, 0, 0, False))
        for value in i.args.values():
            if isinstance(value, VirtualRegister):
                found.append(Touch(REGISTERS, value.number, value.number + 1, 0, 0, True))
        found += [Touch(space, 0, ALL, 0, 0, True) for space in states_of(i)]
        found.append(Touch(ORDER, 0, 1, 0, 0, False))
        return found


def states_of(i: Instruction) -> list[Space]:
    """Spaces besides its operands that an instruction may touch."""
    effects = INSTRUCTIONS[i.opcode].effects
    if not effects.states(i):
        return []
    if effects.state is State.RANDOM:
        return [("random", engine) for engine in GENERATORS]
    return [("accumulators", i.engine) if effects.state is State.SUMS else ORDER]


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


def dependences(nodes: Sequence[Sequence[Touch]]) -> list[list[int]] | None:
    """For each of instructions in order, those before it that it needs, but for those that follow.

    Args:
        nodes: what each touches.

    Returns:
        None where so many touch parts of one space that finding out takes longer than it can save.
    """
    looks = LOOKS * len(nodes)
    # By space, who wrote and who read what nobody has overwritten since.
    spaces: dict[Space, tuple[list[tuple[Touch, int]], list[tuple[Touch, int]]]] = {}
    found: list[list[int]] = []
    for k, node in enumerate(nodes):
        needs: set[int] = set()
        for t in node:
            space, low, high, pitch, _, writes = t
            there = spaces.get(space)
            if there is None:
                spaces[space] = ([(t, k)], []) if writes else ([], [(t, k)])
                continue
            for of in there if writes else there[:1]:
                met, looks = False, looks - len(of)
                for other, n in of:
                    if n == k or high <= other[1] or other[2] <= low:
                        continue
                    if (pitch or other[3]) and t.apart(other):
                        continue
                    needs.add(n)
                    met = True
                if writes and met:  # who comes later needs this one, and with it those
                    of[:] = [e for e in of if e[1] == k or not _covers(t, e[0])]
            there[0 if writes else 1].append((t, k))
        if looks < 0:
            return None
        found.append(sorted(needs))
    return found


def _covers(t: Touch, other: Touch) -> bool:
    if t[3] and t[1:5] != other[1:5]:
        return False
    return t[1] <= other[1] and other[2] <= t[2]
