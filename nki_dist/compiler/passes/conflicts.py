"""Find instructions of two cores that may touch the same shared bytes with nothing between them.

Between two synchronisations (sendrecv, core_barrier, collectives) the cores of a rank run freely:
one such stretch is an epoch, and accesses of different cores in one epoch aren't ordered. Where a
store of one core overlaps an access of the other in an epoch, both instructions are put on the
watch list; the executor records what they read and write, and the launcher compares values
afterwards, because published kernels store the same bytes from both cores on purpose. Programs
whose cores keep to their own parts have an empty list and pay nothing.

Doesn't model: a barrier that orders only its `data` (every synchronisation counts for all tensors),
and synchronisation inside dynamic loops, where all accesses count as one epoch here and the epochs
met at run time decide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from nki_dist.compiler.passes.elements import LARGEST, Elements
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.ordering import orders_cores
from nki_dist.program import Access, Instruction, Loop, Program, instructions

Key = tuple[str, int]


@dataclass
class _Accesses:
    """What one core does with one shared storage in one epoch."""

    stores: list[tuple[int, Access]] = field(default_factory=list)
    loads: list[tuple[int, Access]] = field(default_factory=list)


def find_conflicts(programs: Sequence[Program]) -> None:
    """Set `facts["watched"]` of every program: ordinals of instructions to watch."""
    for program in programs:
        program.facts["watched"] = []
    if len(programs) != 2:
        return
    one_epoch = any(_synchronises_in_loop(p) for p in programs)
    first, second = (_by_epoch(p, one_epoch) for p in programs)
    watched: tuple[set[int], set[int]] = (set(), set())
    for place in first.keys() & second.keys():
        _compare(first[place], second[place], watched)
    for program, ordinals in zip(programs, watched):
        program.facts["watched"] = sorted(ordinals)


def _synchronises_in_loop(program: Program) -> bool:
    loops = [item for item in program.body if isinstance(item, Loop)]
    return any(orders_cores(i, program.core) for loop in loops for i in instructions(loop.body))


def _by_epoch(program: Program, one_epoch: bool) -> dict[tuple[Key, int], _Accesses]:
    found: dict[tuple[Key, int], _Accesses] = defaultdict(_Accesses)
    epoch = 0
    for i in instructions(program.body):
        if INSTRUCTIONS[i.opcode].synchronises:
            epoch += orders_cores(i, program.core) and not one_epoch
            continue
        for a in _visible(i, writes=True):
            found[(a.storage.role, a.storage.index), epoch].stores.append((i.ordinal, a))
        for a in _visible(i, writes=False):
            found[(a.storage.role, a.storage.index), epoch].loads.append((i.ordinal, a))
    return found


def _visible(i: Instruction, writes: bool) -> Iterator[Access]:
    """Operands that the other core can see and that somebody writes."""
    spec = INSTRUCTIONS[i.opcode]
    for a in spec.writes(i) if writes else spec.reads(i):
        s = a.storage
        if s.role == "shared" or (s.role == "input" and s.written):
            yield a


def _compare(a: _Accesses, b: _Accesses, watched: tuple[set[int], set[int]]) -> None:
    everything_a, everything_b = a.stores + a.loads, b.stores + b.loads
    if not (_may_meet(a.stores, everything_b) or _may_meet(b.stores, everything_a)):
        return
    for mine, theirs, side in ((a, b, 0), (b, a, 1)):
        stored = _Region(theirs.stores)
        touched = _Region(theirs.stores + theirs.loads)
        watched[side].update(n for n, access in mine.stores if touched.meets(access))
        watched[side].update(n for n, access in mine.loads if stored.meets(access))


def _may_meet(stores: list[tuple[int, Access]], others: list[tuple[int, Access]]) -> bool:
    """A first look at the ranges of bytes."""
    if not stores or not others:
        return False
    low_a, high_a = _range(stores)
    low_b, high_b = _range(others)
    return low_a < high_b and low_b < high_a


def _range(accesses: list[tuple[int, Access]]) -> tuple[int, int]:
    spans = [(0, a.storage.nbytes) if a.dynamic is not None else a.span() for _, a in accesses]
    return min(low for low, _ in spans), max(high for _, high in spans)


class _Region:
    """The elements that a list of accesses touches; everything, where that can't be told."""

    def __init__(self, accesses: list[tuple[int, Access]]) -> None:
        self.empty = not accesses
        self.everything = any(a.dynamic is not None for _, a in accesses)
        self.elements: Elements | None = None
        if self.empty or self.everything:
            return
        storage = accesses[0][1].storage
        unit = min(a.dtype.itemsize for _, a in accesses)
        unit = min(unit, storage.dtype.itemsize)
        if storage.nbytes // unit > LARGEST:
            self.everything = True
            return
        self.elements = Elements(storage, unit=unit)
        for _, a in accesses:
            self.elements.units(a)[...] = True

    def meets(self, a: Access) -> bool:
        if self.empty:
            return False
        if self.everything or a.dynamic is not None or self.elements is None:
            return True
        if a.dtype.itemsize < self.elements.unit:
            return True
        return bool(self.elements.units(a).any())
