"""A rule about tiles so small that instructions spend most of their time on starting.

Executions that follow each other on a line and don't need each other's results could be one
instruction on a larger tile, in the replay as large as a bank of PSUM holds in float32. Joined are
those whose elements are worked on alone, or reduced along an axis, whose factors of a row (a tile
where a number could stand) are the same, and whose operands would be one: tiles of their own, which
could lie side by side, or parts of one tile at equal distances.

Doesn't see: products with few columns, transposes of small tiles, instructions whose rounds need
each other or lie apart because others of the line come between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from nki_dist.arch import Arch
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.operands import Tensor
from nki_dist.program import Access, Instruction, instructions
from nki_dist.timing.advice.rounds import Kind, Level, at_once, depths
from nki_dist.timing.advice.suspect import Spent, Suspect, costliest, start_ns, with_costs
from nki_dist.timing.fixed import Fixed
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.replay import Part
from nki_dist.timing.timeline import Timeline

_ENGINES: Final = frozenset({"vector", "scalar", "gpsimd"})
_LEAST: Final = 4  # that are joined on average; for fewer nobody writes a kernel anew


def small_tiles(timeline: Timeline, spent: Spent) -> Iterator[Suspect]:
    """Instructions on small tiles that could be one."""
    arch = timeline.arch
    made: dict[int, dict[int, Fixed]] = {}
    durations: dict[str, float] = {}
    count, ns, elements, most = 0, 0.0, 0, 0.0
    for part in {id(p.graph): p for p in timeline.launch.parts}.values():
        joined = _joined(part, arch)
        changed = made[id(part.graph)] = {}
        for i in part.graph.executed if joined else ():
            if i.ordinal not in joined:
                continue
            fixed, n = part.fixed[i.ordinal], joined[i.ordinal]
            start = min(start_ns(i.engine, arch), fixed.occupancy)
            changed[i.ordinal] = replace(fixed, occupancy=fixed.occupancy - start * (1 - 1 / n))
            line = part.graph.program.where(i.location) or "?"
            durations[line] = durations.get(line, 0.0) + fixed.occupancy
            count, ns, most = count + 1, ns + start, max(most, n)
            elements += _free(i, part.graph)
    if not durations:
        return
    yield Suspect(
        "small tiles",
        f"{count:,} instructions on tiles of {elements / count:,.0f} elements per partition need "
        f"{ns / 1000:,.1f} of {sum(durations.values()) / 1000:,.1f} us to start; give one the work "
        f"of up to {most:,.0f} that follow each other and don't need each other's results",
        costliest(durations, spent, durations),
        "AWS's performance guide, #5a: use sufficiently large tiles in the free dimension",
        [with_costs(made)],
        spent.of(durations),
    )


def _joined(part: Part, arch: Arch) -> dict[int, float]:
    """By ordinal, how many executions one instruction could do instead of one."""
    graph = part.graph
    asked: dict[int, Kind] = {}
    for i in instructions(graph.program.body):
        fixed = part.fixed[i.ordinal]
        if i.engine not in _ENGINES or fixed.occupancy >= 2 * start_ns(i.engine, arch):
            continue
        if _joinable(i, graph):
            asked[i.ordinal] = (i.location, id(fixed), *_fixed_tiles(i, graph))
    found: dict[int, float] = {}
    for each in depths(graph, asked).values() if asked else ():
        example = graph.executed[each[0][0]]
        sizes = _runs(graph, each)
        many = at_once(sizes, max(1, arch.psum_bank_bytes // 4 // _free(example, graph)))
        if many >= _LEAST:
            found.update((graph.executed[at].ordinal, many) for at, _ in each)
    return found


def _runs(graph: OrderGraph, each: list[tuple[int, Level]]) -> list[int]:
    """How many follow each other that don't need each other, at equal distances in their tiles."""
    sizes: list[int] = []
    last: Level | None = None
    places: list[int] = []
    step: list[int] | None = None
    for at, level in each:
        reads, writes = graph.tensors[graph.executed[at].ordinal]
        here = [a.offset for a in (*reads, *writes)]
        moved = [b - a for a, b in zip(places, here)]
        parts = [a.nbytes < a.storage.nbytes for a in writes]
        again = any(part and not n for part, n in zip(parts, moved[len(reads) :]))
        if level == last and step in (None, moved) and not again:
            sizes[-1] += 1
            step = moved
        else:
            sizes.append(1)
            step = None
        last, places = level, here
    return sizes


def _joinable(i: Instruction, graph: OrderGraph) -> bool:
    spec = INSTRUCTIONS[i.opcode]
    effects = spec.effects
    reads, writes = graph.tensors[i.ordinal]
    if spec.synchronises or effects.partial or (effects.state is not None and effects.states(i)):
        return False
    if len(writes) != 1 or any(not a.region.on_chip or a.dynamic for a in (*reads, *writes)):
        return False
    return effects.by_element or (effects.by_row is False and "axis" in i.args)


def _fixed_tiles(i: Instruction, graph: OrderGraph) -> list[int]:
    """What names the tiles that all who are joined have in common.

    They are those that stand where a number could, and those of which only a part is used.
    """
    roles = INSTRUCTIONS[i.opcode].roles
    named: list[int] = []
    for name, a in i.args.items():
        if isinstance(a, Access):
            role = roles[name]
            if isinstance(role, Tensor) and role.scalar:
                named += (a.storage.number, a.offset)
            elif a.nbytes < a.storage.nbytes:
                named += (a.storage.number, a.start_partition)
    return named


def _free(i: Instruction, graph: OrderGraph) -> int:
    reads, writes = graph.tensors[i.ordinal]
    return max([a.free_size for a in (*reads, *writes)])
