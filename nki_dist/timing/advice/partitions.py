"""A rule about partitions that lie idle: tiles that use few of them and have long rows.

An engine takes as long for one partition as for all, and a DMA engine serves eight of them, so a
tile of few partitions with long rows leaves most of both unused. Idle partitions can get pieces of
each row where each element is worked on alone. Another place for rows concerns all that touches a
tile, so tiles that meet in an instruction are of one pack. What mixes elements of a row (a sum, a
scan) or partitions (a transpose, a shuffle, a product that reads a tile) says which is where, and
rules that out.

Doesn't see: rows that are reduced, masks and gathers that follow rules of their own
(`affine_select`, `local_gather`), a few rows of a tile that has more, tiles whose addresses on chip
are only known at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from nki_dist.arch import Arch
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.effects import State
from nki_dist.program import Access, Instruction, instructions
from nki_dist.timing.advice.suspect import Spent, Suspect, costliest, distinct
from nki_dist.timing.dma import shared
from nki_dist.timing.fixed import Fixed, Part
from nki_dist.timing.footprint import joined
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.timeline import Timeline

_LONG: Final = 64  # elements of a row, which take about as long as an instruction's start


class _Pack(NamedTuple):
    """Tiles whose rows can be cut in pieces together.

    Attributes:
        rows, row: partitions of the tile that has most, elements of the longest row.
        members: instructions that touch the pack, each with the longest row that it works on.
    """

    rows: int
    row: int
    members: list[tuple[Instruction, int]]


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
        cut_of: dict[tuple[int, int], Fixed] = {}
        for pack in _packs(part.graph, arch):
            most = arch.partitions // pack.rows
            whole, piece = (pack.rows, pack.row), (pack.rows * most, -(-pack.row // most))
            shapes.append("({:,}, {:,}) as ({:,}, {:,})".format(*whole, *piece))
            rows.add(pack.rows)
            for i, row in pack.members:
                key = id(part.fixed[i.ordinal]), min(most, row)  # of its pattern
                if key not in cut_of:
                    cut_of[key] = _in_pieces(i, part, key[1], arch)
                changed[i.ordinal] = cut_of[key]
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


def _packs(graph: OrderGraph, arch: Arch) -> Iterator[_Pack]:
    """The packs of a program that have long rows."""
    longest = {  # of its accesses, by tile of few partitions
        s.number: 0
        for s in graph.program.storages
        if s.region.on_chip and s.partitions <= arch.partitions // 2
    }
    touching: list[tuple[Instruction, list[Access], list[int]]] = []
    for i in instructions(graph.program.body) if longest else ():
        reads, writes = graph.tensors[i.ordinal]
        on_chip = [a for a in (*reads, *writes) if a.region.on_chip]
        mine = [a for a in on_chip if a.storage.number in longest]
        for a in mine:
            longest[a.storage.number] = max(longest[a.storage.number], a.free_size)
        if mine:
            touching.append((i, on_chip, [a.storage.number for a in mine]))
    if max(longest.values(), default=0) < _LONG:
        return
    roots = joined(numbers for *_, numbers in touching)
    groups: dict[int, list[tuple[Instruction, list[Access], int]]] = {}
    for i, on_chip, numbers in touching:
        long = [a.free_size for a in on_chip if longest.get(a.storage.number, 0) >= _LONG]
        groups.setdefault(roots[numbers[0]], []).append((i, on_chip, max(long, default=0)))
    for group in groups.values():
        row = max(row for *_, row in group)
        if row >= _LONG and all(_alone(i, a, longest) for i, a, row in group if row):
            tiles = {a.storage for _, on_chip, _ in group for a in on_chip}
            rows = max(s.partitions for s in tiles if s.number in longest)
            members = [(i, row) for i, _, row in group if i.engine != "tensor"]
            yield _Pack(rows, row, members)


def _alone(i: Instruction, on_chip: Sequence[Access], few: Mapping[int, int]) -> bool:
    """Whether an instruction works on elements alone, of tiles of few partitions."""
    spec = INSTRUCTIONS[i.opcode]
    effects = spec.effects
    if not spec.writes(i) or spec.synchronises or effects.state in (State.RANDOM, State.PRINTED):
        return False
    if any(a.dynamic is not None or a.storage.number not in few for a in on_chip):
        return False
    if len({a.shape[0] for a in on_chip}) > 1:
        return False
    if i.engine == "dma":
        return effects.copies and len(on_chip) == 1
    return i.engine != "tensor" and effects.by_element


def _mean(fixed: Fixed, arch: Arch) -> float:
    """How long an engine works for an instruction; of DMA, an engine on average."""
    t = fixed.transfer
    return fixed.occupancy if t is None else sum(ns for _, ns in t.parts) / arch.dma_engines


def _in_pieces(i: Instruction, part: Part, pieces: int, arch: Arch) -> Fixed:
    """What an instruction costs with its rows cut in pieces."""
    fixed, (reads, writes) = part.fixed[i.ordinal], part.graph.tensors[i.ordinal]
    if pieces <= 1:
        return fixed
    if fixed.transfer is not None:
        rows = max([a.shape[0] for a in (*reads, *writes) if a.region.on_chip]) * pieces
        return replace(fixed, transfer=shared(fixed.transfer, fixed.cost, rows, arch))
    # What it takes whatever the size of its tiles.
    cycles = arch.gpsimd_start if i.engine == "gpsimd" else arch.access_cycles
    start = min(cycles / arch.engine_clock_ghz[i.engine], fixed.occupancy)
    return replace(fixed, occupancy=start + (fixed.occupancy - start) / pieces)
