"""Running linked programs in random orders that their needs allow: the bits are the same.

`needs` says which instruction needs which, and lanes rely on it: a need that is missing is a silent
race. Here one core carries out each straight run in an order that keeps the needs and little else,
with a memory for every storage and panel, so that no reuse of buffers adds needs. Outputs, what is
printed, and errors must be those of the program's own order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from nki_dist import arch
from nki_dist.errors import NkiError
from nki_dist.isa import kit
from nki_dist.linking.lanes import Lane, Schedule
from nki_dist.linking.link import link
from nki_dist.linking.linked import Late, LinkedLoop, Segment
from nki_dist.linking.lives import Laned
from nki_dist.linking.memory import Life, places
from nki_dist.linking.needs import Needs, dependences
from nki_dist.linking.panels import Panel
from nki_dist.linking.passes import left_out
from nki_dist.linking.placing import LanedSegment, Placed
from nki_dist.ops.alignment import aligned
from nki_dist.program import Program
from nki_dist.runtime import group, hosts, memory

ALWAYS = Life(0, 1 << 62)


class Ordered:
    """A linked program and what its straight runs need."""

    def __init__(self, program: Program) -> None:
        self._without = left_out()
        self.linked = link(program, arch.get(program.platform), self._without)
        needs = Needs(self.linked)
        self._needs: dict[int, list[list[int]]] = {}
        self.free = self.steps = 0
        for straight in _straights(self.linked.body):
            touched = [
                needs.of_late(run.instruction) if type(run) is Late else needs.of(run)
                for run in straight.steps
            ]
            found = self._needs[id(straight)] = dependences(touched)
            self.steps += len(found)
            self.free += sum(k - 1 not in before for k, before in enumerate(found))

    def placed(self, rng: random.Random | None) -> Placed:
        """In memory, in the program's own order or in another one that the needs allow."""
        linked, program = self.linked, self.linked.program
        panels = [
            Panel(p.number, p.shape, ALWAYS.first, ALWAYS.last) for p in linked.panels if p.nbytes
        ]
        body = self._block(linked.body, rng)
        local = {s.number: ALWAYS for s in program.storages}
        return _Placed(
            replace(linked, body=body, panels=panels),
            arch.get(program.platform),
            places(program, local),
            self._without,
        )

    def _block(self, block: Sequence[Any], rng: random.Random | None) -> list[Any]:
        found: list[Any] = []
        for item in block:
            if isinstance(item, Segment):
                needs = self._needs[id(item)]
                order = list(range(len(needs))) if rng is None else any_order(needs, rng)
                item = Laned(
                    [item.steps[k] for k in order],
                    [item.instructions[k] for k in order],
                    [0] * len(order),
                    frozenset(n for n, k in enumerate(order) if k in item.births),
                    [[] for _ in order],  # it waits for nobody
                    [set() for _ in order],
                )
            elif isinstance(item, LinkedLoop):
                item = LinkedLoop(item.loop, self._block(item.body, rng))
            found.append(item)
        return found


def _straights(block: Sequence[Any]) -> Iterator[Segment]:
    for item in block:
        if isinstance(item, LinkedLoop):
            yield from _straights(item.body)
        elif isinstance(item, Segment):
            yield item


def any_order(needs: Sequence[Sequence[int]], rng: random.Random) -> list[int]:
    """An order in which everything comes after what it needs.

    Some orders take what may come at random, others mostly the last or the first of the program.
    """
    waits = [len(before) for before in needs]
    after: list[list[int]] = [[] for _ in needs]
    for k, before in enumerate(needs):
        for n in before:
            after[n].append(k)
    ready, found = [k for k, n in enumerate(waits) if not n], []
    late = rng.choice((0.0, 0.5, 1.0))
    while ready:
        at = len(ready) - 1 if rng.random() < late else rng.randrange(len(ready))
        k = ready.pop(at)
        found.append(k)
        for n in after[k]:
            waits[n] -= 1
            if not waits[n]:
                ready.append(n)
    assert len(found) == len(needs), "a circle of needs"
    return found


class _Placed(Placed):
    """All in the first lane, in the order that is given; lanes look which failure is the first."""

    def _laned(self, laned: Laned) -> LanedSegment:
        steps = [self._settled(run) if type(run) is Late else self._runs[run] for run in laned.runs]
        schedule = Schedule(laned.lane_of, [Lane(list(range(len(steps)))), Lane()])
        return LanedSegment(steps, laned.instructions, schedule, laned.births)


@dataclass
class Tried:
    """What has been tried.

    Attributes:
        launches: programs' launches.
        orders: that they have run in, besides their own.
        steps, free: instructions, and those that don't need the one before them.
        large: launches left out, as each storage's own memory is too much.
        differences: what was different.
    """

    launches: int = 0
    orders: int = 0
    steps: int = 0
    free: int = 0
    large: int = 0
    differences: list[str] = field(default_factory=list)


@contextmanager
def in_orders(orders: int, seed: int = 0, limit: int = 1 << 30) -> Iterator[Tried]:
    """Have every launch in this process run again in so many orders, and compare.

    Args:
        limit: bytes of all storages of a launch.
    """
    tried, original = Tried(), hosts.InProcessHost.launch

    def launch(host: Any, launch: hosts.Launch) -> hosts.LaunchResult:
        try:
            return original(host, launch)
        finally:
            _try(host, launch, original, tried, orders, seed, limit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosts.InProcessHost, "launch", launch)
        yield tried


def _try(
    host: Any, launch: Any, original: Any, tried: Tried, orders: int, seed: int, limit: int
) -> None:
    programs = launch.compiled.as_run.programs
    storages = sum(s.nbytes for p in programs for s in p.storages if s.role == "local")
    if storages * len(host.ranks) > limit:
        tried.large += 1
        return
    lnc = len(programs)
    tried.launches += 1
    try:
        ordered = {id(p): Ordered(p) for p in programs}
    except NkiError:  # which the launch has met
        return
    tried.steps += sum(o.steps for o in ordered.values())
    tried.free += sum(o.free for o in ordered.values())
    want = _outcome(host, launch, original, ordered, lnc, None)
    for n in range(orders):
        rng = random.Random(f"{seed} {n}")
        tried.orders += 1
        got = _outcome(host, launch, original, ordered, lnc, rng)
        if got != want:
            what = [name for name, one, two in zip(_WHAT, got, want, strict=True) if one != two]
            tried.differences.append(f"{programs[0].kernel}, order {n}: {', '.join(what)}")


_WHAT = ("outputs", "printing", "error")


def _outcome(
    host: Any, launch: Any, original: Any, ordered: Any, lnc: int, rng: random.Random | None
) -> tuple[Any, ...]:
    """Bytes of what cores share, what they print, and the error."""
    printed: list[Any] = []
    other = _Zeroed(len(host.ranks), lnc, host._group.slots[0].ranks_per_node)

    def placed(program: Program, *_: Any) -> Placed:
        return ordered[id(program)].placed(rng)

    def printer(core: int, prefix: str, array: np.ndarray) -> None:
        printed.append((core, prefix, array.tobytes()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group, "placed_program", placed)
        for module in (kit, memory):
            patch.setattr(module, "aligned", unlike)
        try:
            result = original(other, replace(launch, printer=printer, warn=lambda warning: None))
        except Exception as error:  # with a need missing, whatever kind
            if rng is None and not isinstance(error, NkiError):
                raise
            return b"", printed, repr(error)
        finally:
            other.close()
    return b"".join(m.tobytes() for m in result.memories), printed, ""


def unlike(nbytes: int) -> np.ndarray:
    """Memory that doesn't happen to hold what a run before has left, which may be right."""
    found = aligned(nbytes)
    found.fill(0x5A)
    return found


class _Zeroed(hosts.InProcessHost):
    """Stacks begin alike, so that all of them can be compared."""

    def _ensure(self, need: int, common: int) -> None:
        super()._ensure(need, common)
        for stack in self._stacks:
            stack.fill(0)
