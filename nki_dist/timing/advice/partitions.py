"""A rule about partitions that lie idle: tiles that use few of them and have long rows.

An engine takes as long for one partition as for all, and a DMA engine serves eight of them, so a
tile of few partitions with long rows leaves most of both unused. Idle partitions can get pieces of
each row; `packs` says when.

Doesn't see: rows that are reduced, masks and gathers that follow rules of their own
(`affine_select`, `local_gather`), a few rows of a tile that has more, tiles whose addresses on chip
are only known at run time.
"""

from __future__ import annotations

from dataclasses import replace

from nki_dist.arch import Arch
from nki_dist.program import Instruction
from nki_dist.timing.advice.packs import Pack, packs
from nki_dist.timing.advice.suspect import Spent, Suspect, costliest, distinct
from nki_dist.timing.dma import shared
from nki_dist.timing.fixed import Fixed, Part
from nki_dist.timing.timeline import Timeline


def idle_partitions(timeline: Timeline, spent: Spent) -> Suspect | None:
    """Tiles of few partitions with long rows."""
    arch = timeline.arch
    cut: dict[int, dict[int, Fixed]] = {}  # by graph's identity and ordinal
    durations: dict[str, float] = {}
    busy: dict[str, float] = {}
    rows: set[int] = set()
    shapes: list[str] = []
    for part in distinct(timeline):
        changed = cut[id(part.graph)] = {}
        costs = _Costs(part, arch)
        for pack in packs(part.graph, arch):
            if pack.splits:
                most = arch.partitions // pack.rows
                whole, piece = (pack.rows, pack.row), (pack.rows * most, -(-pack.row // most))
                shapes.append("({:,}, {:,}) as ({:,}, {:,})".format(*whole, *piece))
                rows.add(pack.rows)
                changed.update((i.ordinal, costs.in_pieces(i, pack, most)) for i in pack.members)
        for i in part.graph.executed if changed else ():
            if i.ordinal in changed:
                line, took = part.graph.line(i.location), _mean(part.fixed[i.ordinal], arch)
                durations[line] = durations.get(line, 0.0) + took
                busy[i.engine] = busy.get(i.engine, 0.0) + took
    if not durations:
        return None
    engine = max(busy, key=busy.__getitem__)

    def change(_: int, part: Part) -> Part:
        return part._replace(fixed={**part.fixed, **cut[id(part.graph)]})

    return Suspect(
        "idle partitions",
        f"{'DMA' if engine == 'dma' else engine.capitalize()} works {busy[engine] / 1000:,.1f} us "
        f"on tiles of {' to '.join(map(str, sorted({min(rows), max(rows)})))} of {arch.partitions} "
        f"partitions with long rows; lay pieces of each row on idle partitions, {shapes[0]}",
        costliest(durations, spent),
        "AWS's performance guide, #5b: use sufficiently large tiles in the partition dimension",
        [change],
        spent.of(durations),
    )


def _mean(fixed: Fixed, arch: Arch) -> float:
    """How long an engine works for an instruction; of DMA, an engine on average."""
    t = fixed.transfer
    return fixed.occupancy if t is None else sum(ns for _, ns in t.parts) / arch.dma_engines


class _Costs:
    """What a core's instructions cost if their tiles lay otherwise; each pattern is seen once."""

    def __init__(self, part: Part, arch: Arch) -> None:
        self._part, self._arch = part, arch
        self._cache: dict[tuple[int, int], Fixed] = {}

    def in_pieces(self, i: Instruction, pack: Pack, most: int) -> Fixed:
        """With rows cut in up to `most` pieces."""
        fixed, pair = self._part.fixed[i.ordinal], self._part.graph.tensors[i.ordinal]
        on_chip = [a for accesses in pair for a in accesses if a.region.on_chip]
        pieces = min(most, pack.length(on_chip))
        if pieces <= 1:
            return fixed
        key = (id(fixed), pieces)
        if key not in self._cache:
            if fixed.transfer is not None:
                rows = max([a.shape[0] for a in on_chip]) * pieces
                moved = shared(fixed.transfer, fixed.cost, rows, self._arch)
                self._cache[key] = replace(fixed, transfer=moved)
            else:
                start = min(_start_ns(i.engine, self._arch), fixed.occupancy)
                shorter = start + (fixed.occupancy - start) / pieces
                self._cache[key] = replace(fixed, occupancy=shorter)
        return self._cache[key]


def _start_ns(engine: str, arch: Arch) -> float:
    """What an instruction of a compute engine takes whatever the size of its tiles."""
    cycles = arch.gpsimd_start if engine == "gpsimd" else arch.access_cycles
    return cycles / arch.engine_clock_ghz[engine]
