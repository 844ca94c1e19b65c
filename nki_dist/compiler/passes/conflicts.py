"""Find instructions of two cores that may touch the same shared bytes with nothing between them.

Between two synchronisations (sendrecv, core_barrier, collectives) the cores of a rank run freely:
one such stretch is an epoch, and accesses of different cores in one epoch aren't ordered. Where a
store of one core overlaps an access of the other in an epoch, both instructions are put on the
watch list; the executor records what they read and write, and the launcher compares values
afterwards, because published kernels store the same bytes from both cores on purpose. Programs
whose cores keep to their own parts have an empty list and pay nothing.

An address that is known at run time only is `index * stride` plus something known. Which index is
left open, but not the place within the stride: cores that keep to their own columns of rows, or to
their own halves of experts, don't meet whichever rows or experts they choose.

A barrier counts for its `data` only, if that is a shared tensor.

Doesn't model: synchronisation inside dynamic loops, where all accesses count as one epoch here and
the epochs met at run time decide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd

import numpy as np

from nki_dist.compiler.passes.elements import LARGEST
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import Epochs, Ordering
from nki_dist.program import Access, Instruction, Loop, Program, instructions
from nki_dist.program.pattern import Pattern

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
    inside = (i for loop in loops for i in instructions(loop.body))
    return any(INSTRUCTIONS[i.opcode].orders(i, program.core) for i in inside)


def _by_epoch(program: Program, one_epoch: bool) -> dict[tuple[Key, int], _Accesses]:
    found: dict[tuple[Key, int], _Accesses] = defaultdict(_Accesses)
    epochs = Epochs()
    for i in instructions(program.body):
        spec = INSTRUCTIONS[i.opcode]
        if spec.synchronises:
            if not one_epoch:
                epochs.met(ordering(program, i))
            continue
        if not spec.in_hbm:
            continue  # sources of run-time indices aren't, either
        for a in visible(i, writes=True):
            found[a.storage.key, epochs.of(a.storage.key)].stores.append((i.ordinal, a))
        for a in visible(i, writes=False):
            found[a.storage.key, epochs.of(a.storage.key)].loads.append((i.ordinal, a))
    return found


def ordering(program: Program, i: Instruction) -> Ordering:
    """What a synchronisation orders."""
    spec = INSTRUCTIONS[i.opcode]
    orders = spec.orders(i, program.core)
    if not orders or spec.meets is None:
        return orders, None
    data = spec.meets.hands(i)
    return True, None if data is None else data.storage.key


def visible(i: Instruction, writes: bool) -> Iterator[Access]:
    """Operands that the other core can see and that are written.

    Of arguments, those that this core writes itself: what it only loads of a cache that the other
    updates in place (nki-library's attention_block_tkg, which ran on devices) it masks.
    """
    spec = INSTRUCTIONS[i.opcode]
    for a in spec.writes(i) if writes else spec.reads(i):
        s = a.storage
        if s.role == "shared" or (s.role == "input" and s.written):
            yield a


def _compare(a: _Accesses, b: _Accesses, watched: tuple[set[int], set[int]]) -> None:
    everything_a, everything_b = a.stores + a.loads, b.stores + b.loads
    if not (_may_meet(a.stores, everything_b) or _may_meet(b.stores, everything_a)):
        return
    grid = _Grid([access for _, access in everything_a + everything_b])
    for mine, theirs, side in ((a, b, 0), (b, a, 1)):
        stored, touched = grid.cells(theirs.stores), grid.cells(theirs.stores + theirs.loads)
        watched[side].update(n for n, access in mine.stores if grid.meets(access, touched))
        watched[side].update(n for n, access in mine.loads if grid.meets(access, stored))


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


class _Grid:
    """How finely, how far and with which period the bytes of accesses are looked at.

    Attributes:
        unit: bytes of the largest cells of which all accesses consist.
        nbytes: up to the end of all accesses at index 0; whole periods.
        period: greatest common divisor of the strides of run-time indices, in bytes; 0 without any.
        known: False if accesses may be anywhere.
    """

    def __init__(self, accesses: list[Access]) -> None:
        dynamic = [(a.dynamic, a.dtype.itemsize) for a in accesses if a.dynamic is not None]
        self.period = gcd(*(d.stride * itemsize for d, itemsize in dynamic))
        patterns = list(map(_at_zero, accesses))
        self.unit = gcd(self.period, *(p.unit(0) for p in patterns))
        end = max(p.span()[1] for p in patterns)
        self.nbytes = -(-end // self.period) * self.period if self.period else end
        self.exact = self.nbytes // self.unit <= LARGEST and all(
            d.kind in ("scalar", "vector") for d, _ in dynamic
        )

    def cells(self, accesses: list[tuple[int, Access]]) -> np.ndarray:
        """The bytes that some accesses may touch; of nothing none, one where that can't be told.

        With run-time addresses these are the bytes for index 0, and the same again at every
        distance of whole periods: whatever the indices are, an access whose bytes for index 0
        aren't among them doesn't meet these.
        """
        if not accesses or not self.exact:
            return np.ones(min(len(accesses), 1), bool)
        # Zeros come from the system, which makes only those pages that are used.
        cells = np.zeros(self.nbytes // self.unit, bool)
        for _, a in accesses:
            _at_zero(a).put(True, cells, self.unit)
        if self.period:
            periods = cells.reshape(-1, self.period // self.unit)
            periods[:] = periods.any(axis=0)
        return cells

    def meets(self, a: Access, cells: np.ndarray) -> bool:
        """Whether an access may touch some of these."""
        if not self.exact or not cells.size:
            return bool(cells.size)
        return bool(_at_zero(a).get(cells, self.unit).any())


def _at_zero(a: Access) -> Pattern:
    """The access at index 0; of a vector of indices the first, as the others are strides away."""
    if a.dynamic is not None and a.dynamic.kind == "vector":
        a = Access(a.storage, a.offset, (1, *a.shape[1:]), a.strides, a.dtype)
    return Pattern.of(a).joined()
