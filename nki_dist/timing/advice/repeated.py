"""Rules about what is loaded or made again although nothing changed: hoist it, and keep the tile.

`values` says what is repeated. The replay does without it, as far as there is room for the tiles
that stay: half of SBUF, and of PSUM. Tiles that only repeated work reads needn't stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from nki_dist.arch import Arch
from nki_dist.program import MemoryRegion, Storage
from nki_dist.timing.advice.suspect import Spent, Suspect, costliest, line_of
from nki_dist.timing.advice.values import repetitions
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.replay import Part
from nki_dist.timing.timeline import Timeline

_KEPT: Final = 0.5  # of a memory that tiles may take which stay
_NAMED: Final = 3  # instructions that a finding names


def repeated(timeline: Timeline, spent: Spent) -> Iterator[Suspect]:
    """Loads of what was loaded before; other work on what is as it was, and its loads."""
    parts = {id(p.graph): p for p in timeline.launch.parts}
    again = {
        key: repetitions(part.graph, part.fixed, part.plan.dropped) for key, part in parts.items()
    }
    if not any(found for found, _ in again.values()):
        return
    loads, work = (_Repeated(timeline, parts, again, which) for which in (True, False))
    if n := loads.count:
        yield loads.suspect(
            "repeated loads",
            f"{'1 load fetches' if n == 1 else f'{n:,} loads fetch'} {loads.size:,} bytes again "
            "that were loaded before and didn't change; load them once, before the loop, and keep",
            "AWS's performance guide, #1: exploit temporal locality to minimize input data "
            "reloading",
            spent,
            spent.dma,
        )
    if n := work.count:
        names = ", ".join(f"{k:,} {name}" for name, k in work.opcodes.most_common(_NAMED))
        yield work.suspect(
            "repeated work",
            f"{'1 instruction makes' if n == 1 else f'{n:,} instructions make'} again what was "
            f"made before of equal operands ({names}); do it once, before the loop, and keep",
            "AWS's performance guide, #1, for results: what doesn't change needn't be made again",
            spent,
        )


class _Repeated:
    """What all cores do again."""

    def __init__(
        self,
        timeline: Timeline,
        parts: Mapping[int, Part],
        again: Mapping[int, tuple[Mapping[int, int], set[int]]],
        loads: bool,
    ) -> None:
        self.count, self.size, self.kept = 0, 0, 0
        self.opcodes: Counter[str] = Counter()
        self._durations: dict[str, float] = {}
        self._found: dict[int, dict[int, int]] = {}
        self._apart = {key: apart for key, (_, apart) in again.items()}
        for key, part in parts.items():
            self._found[key], tiles = _hoisted(part, *again[key], timeline.arch, loads)
            self.kept = max(self.kept, sum(s.partition_bytes for s in tiles))
        for core in timeline.cores:
            for at in self._found[id(core.graph)]:
                i = core.graph.executed[at]
                line = line_of(core, i)
                took = core.end[at] - core.start[at]
                self._durations[line] = self._durations.get(line, 0.0) + took
                self.count += 1
                self.opcodes[i.opcode] += 1
                if i.ordinal in core.transfers:
                    self.size += core.transfers[i.ordinal].hbm_read

    def suspect(
        self, rule: str, text: str, source: str, spent: Spent, most_ns: float | None = None
    ) -> Suspect:
        room = f"the tiles ({self.kept:,} bytes of each partition)" if self.kept else "the tile"
        most = spent.of(self._durations) if most_ns is None else most_ns
        lines = costliest(self._durations, spent, self._durations)
        return Suspect(rule, f"{text} {room}", lines, source, [self._change], most)

    def _change(self, _: int, part: Part) -> Part:
        """The same without: what follows only waits for the first that made it."""
        graph, again = part.graph, self._found[id(part.graph)]
        data, reuse = list(graph.data), list(graph.reuse)
        same = dict(part.plan.same)
        apart = self._apart[id(graph)].intersection(again)
        for at, before in enumerate(graph.data) if apart else ():
            for p in apart.intersection(before):  # who changes the tile now waits for its readers
                if not {*_writes(graph, p)}.isdisjoint(_writes(graph, at)):
                    reuse[at] = (*reuse[at], *graph.reuse[p])
        for at, first in again.items():
            data[at], reuse[at] = (first,), ()
            if at in apart:
                continue
            for a, b in zip(_writes(graph, at), _writes(graph, first), strict=True):
                if a is not b:
                    same[a.number] = same.get(b.number, b.number)
        dropped = set(part.plan.dropped) | set(again)
        plan = replace(part.plan, dropped=dropped, same=same)
        return Part(replace(graph, data=data, reuse=reuse), plan, part.fixed)


def _hoisted(
    part: Part, again: Mapping[int, int], apart: set[int], arch: Arch, loads: bool
) -> tuple[dict[int, int], set[Storage]]:
    """What needn't be done, by position: the first that did it; and the tiles that stay for it."""
    graph = part.graph
    readers: dict[int, list[int]] = {at: [] for at in again}
    for at, before in enumerate(graph.data) if again else ():
        for p in before:
            if p in readers:
                readers[p].append(at)
    sbuf, psum = arch.sbuf_usable_bytes, arch.psum_usable_banks * arch.psum_bank_bytes
    left = {MemoryRegion.sbuf: _KEPT * sbuf, MemoryRegion.psum: _KEPT * psum}
    found: dict[int, int] = {}
    tiles: set[Storage] = set()
    for at, first in sorted(again.items(), reverse=True):  # who reads it comes first
        load = graph.executed[at].engine == "dma"
        needed = any(reader not in found for reader in readers[at])
        if load is not loads and (loads or needed):
            continue
        there = () if at in apart else _writes(graph, at)
        more = {*_writes(graph, first)}.difference(tiles, there) if needed else set()
        size = sum(s.partition_bytes for s in more)
        if more and size > left[next(iter(more)).region]:
            continue
        for s in more:
            left[s.region] -= s.partition_bytes
        tiles |= more
        found[at] = first
    return found, tiles


def _writes(graph: OrderGraph, at: int) -> list[Storage]:
    return [a.storage for a in graph.tensors[graph.executed[at].ordinal][1]]
