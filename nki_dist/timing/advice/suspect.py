"""What a rule suspects, and how a launch would look without it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from nki_dist.arch import Arch
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Instruction, Program
from nki_dist.timing.critical import critical_path
from nki_dist.timing.fixed import Fixed, describe
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.replay import Part
from nki_dist.timing.timeline import CoreTimeline, Timeline

Change: TypeAlias = "Callable[[int, Part], Part]"
"""What a core would execute instead, from its number over the launch and what it executes."""

LINES: Final = 5  # that a finding names, and changes


class Spent(NamedTuple):
    """What the critical path was spent on, in ns; waits are with what waited.

    Attributes:
        lines: by kernel line.
        dma: on transfers and on waiting for them.
    """

    lines: Mapping[str, float]
    dma: float

    def of(self, lines: Iterable[str]) -> float:
        return sum(self.lines.get(line, 0.0) for line in lines)


@dataclass(frozen=True)
class Suspect:
    """Something that may cost time.

    Attributes:
        changes: ways to be without it; the best counts.
        most_ns: critical time that it can be about; if that is little, it isn't replayed.
        by_core: cores that execute the same may be changed differently.
    """

    rule: str
    text: str
    lines: list[str]
    source: str
    changes: Sequence[Change]
    most_ns: float
    by_core: bool = False


def spent_on(timeline: Timeline) -> Spent:
    """What the critical path was spent on."""
    found: dict[str, float] = {}
    dma = 0.0
    for p in critical_path(timeline):
        core = timeline.cores[p.core]
        i = core.graph.executed[p.position]
        line = line_of(core, i)
        found[line] = found.get(line, 0.0) + p.end - p.start
        if i.ordinal in core.transfers:
            dma += p.end - p.start
    return Spent(found, dma)


def line_of(core: CoreTimeline, i: Instruction) -> str:
    return core.graph.program.where(i.location) or "?"


def costliest(
    lines: Iterable[str], spent: Spent, durations: Mapping[str, float] | None = None
) -> list[str]:
    """The lines that matter most, by critical time, then by their sum of durations."""
    sums = durations or {}
    ordered = sorted(set(lines), key=lambda x: (-spent.lines.get(x, 0.0), -sums.get(x, 0.0), x))
    return ordered[:LINES]


def critical(
    lines: Iterable[str], spent: Spent, durations: Mapping[str, float] | None = None
) -> list[str]:
    """The same of those that take critical time."""
    return costliest((x for x in lines if spent.lines.get(x)), spent, durations)


def of_lines(program: Program, wanted: Collection[str]) -> set[int]:
    """Numbers of a program's locations that are among these lines."""
    return {n for n in range(len(program.locations)) if program.where(n) in wanted}


def rewritten(part: Part, made: Mapping[int, Instruction], arch: Arch) -> Part:
    """A core with other instructions, by ordinal, in place of its own."""
    graph = part.graph
    program = replace(graph.program, body=list(made.values()))
    small = OrderGraph(program, tensors=graph.tensors)
    fixed = {**part.fixed, **describe(small, INSTRUCTIONS, arch, part.plan)}
    executed = [made.get(i.ordinal, i) for i in graph.executed]
    return Part(replace(graph, executed=executed), part.plan, fixed)


def refixed(part: Part, change: Callable[[Instruction, Fixed], Fixed]) -> Part:
    """A core whose instructions cost something else."""
    seen: dict[int, Fixed] = {}
    for i in part.graph.executed:
        if i.ordinal not in seen:
            seen[i.ordinal] = change(i, part.fixed[i.ordinal])
    return Part(part.graph, part.plan, {**part.fixed, **seen})


def with_costs(made: Mapping[int, Mapping[int, Fixed]]) -> Change:
    """Instructions that cost something else, by graph's identity and ordinal."""

    def change(_: int, part: Part) -> Part:
        return Part(part.graph, part.plan, {**part.fixed, **made[id(part.graph)]})

    return change


def start_ns(engine: str, arch: Arch) -> float:
    """What an instruction of a compute engine takes whatever the size of its tiles."""
    cycles = arch.gpsimd_start if engine == "gpsimd" else arch.access_cycles
    return cycles / arch.engine_clock_ghz[engine]
