"""Shared tensors that cores leave for each other: whether all that is read of them was written.

A core that reads what the other one stored relies on a synchronisation of both. Where the program
alone says which cores meet where, what each surely stored before a rendezvous is there for both
after it, and what a core stored itself is there at once. A read of any other element may find what
nobody wrote; whether it does is for a run to tell (`launcher.unwritten`).

Cores meet in instructions where they surely wait for each other (`Meets.waits`), which are matched
in program order. What one of them orders is for `conflicts.ordering` to say, so a barrier hands
over its `data` only. From the first dynamic loop with such an instruction on, nothing more is
handed over: which of them is which isn't known.

Invariant: of a tensor that isn't named, no core reads an element that wasn't surely written.

Doesn't follow run-time addresses: a store there counts for nothing, a load needs all elements.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from nki_dist.compiler.passes.conflicts import ordering
from nki_dist.compiler.passes.elements import LARGEST, Elements
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import Ordering
from nki_dist.program import Access, Loop, Program, Storage, instructions

OPEN_READS: Final = "open_reads"

_BOTH: Final = 0b11

Key: TypeAlias = "tuple[str, int]"


class Use(NamedTuple):
    """A store to a shared tensor that surely happens, or a load of one that another core writes."""

    ordinal: int
    access: Access
    stores: bool


def open_reads(programs: Sequence[Program], uses: Sequence[Sequence[Use]]) -> set[Key]:
    """(role, index) of the shared tensors that a core may read where nobody has written.

    Args:
        uses: per core, in program order.
    """
    read = (use.access.storage for core in uses for use in core if not use.stores)
    storages = {s.key: s for s in read if s.role == "shared"}
    if not storages or len(programs) != 2:
        return set(storages)
    written = _Written(storages)
    done = [0, 0]
    for ordinals, orders in _rendezvous(programs):
        for core, ordinal in enumerate(ordinals):
            end = bisect_left(uses[core], ordinal, key=lambda use: use.ordinal)
            written.take(core, uses[core][done[core] : end])
            done[core] = end
        written.met(orders)
    for core, start in enumerate(done):
        written.take(core, uses[core][start:])
    return written.open


def _rendezvous(programs: Sequence[Program]) -> Iterator[tuple[tuple[int, ...], Ordering]]:
    """Where the cores surely wait for each other, and what that orders."""
    for sides in zip(*map(_waits, programs)):
        (_, what), (_, other) = sides
        if what != other:
            return  # the run says what is wrong with it
        yield tuple(ordinal for ordinal, _ in sides), what[1]


def _waits(program: Program) -> Iterator[tuple[int, Any]]:
    """Instructions in which a core waits for the other, as far as it is known which they are."""
    core = program.core
    for item in program.body:
        if isinstance(item, Loop):
            if any(INSTRUCTIONS[i.opcode].waits(i, core) for i in instructions(item.body)):
                return
        elif (spec := INSTRUCTIONS[item.opcode]).waits(item, core):
            assert spec.meets is not None
            yield item.ordinal, (spec.meets.channel(item), ordering(program, item))


class _Written:
    """Which elements of some shared tensors each core may read, as the cores go on.

    Attributes:
        open: keys of the tensors of which a core read other elements.
    """

    def __init__(self, storages: Mapping[Key, Storage]) -> None:
        self.open = {key for key, s in storages.items() if s.nbytes // s.dtype.itemsize > LARGEST}
        closed = storages.keys() - self.open
        self._readable = {key: Elements(storages[key], 0, np.uint8) for key in closed}
        self._stores: dict[Key, list[Access]] = defaultdict(list)  # since the last rendezvous

    def take(self, core: int, uses: Iterable[Use]) -> None:
        """What a core does next."""
        bit = 1 << core
        for _, a, stores in uses:
            key = a.storage.key
            readable = self._readable.get(key)
            if readable is None:
                continue
            if stores:
                units = readable.units(a)
                units |= bit
                self._stores[key].append(a)
            elif not ((readable.units(a) if a.dynamic is None else readable.mask) & bit).all():
                self.open.add(key)
                del self._readable[key]
                self._stores.pop(key, None)

    def met(self, orders: Ordering) -> None:
        """Each core may read what the other has stored so far: of all tensors, or of one."""
        for key in list(self._stores) if orders[1] is None else [orders[1]]:
            for a in self._stores.pop(key, ()):
                self._readable[key].units(a)[...] = _BOTH
