"""What a rule suspects, how a launch would look without it, and how rules look for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from nki_dist.arch import Arch
from nki_dist.program import Instruction, Program, instructions
from nki_dist.timing.critical import critical_path
from nki_dist.timing.fixed import Fixed, Part, describe
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.timeline import CoreTimeline, Timeline

Change: TypeAlias = "Callable[[int, Part], Part]"
"""What a core would execute instead, from its number over the launch and what it executes."""
Executed: TypeAlias = tuple[CoreTimeline, int, Instruction]  # and its position

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
        line = core.graph.line(i.location)
        found[line] = found.get(line, 0.0) + p.end - p.start
        if i.ordinal in core.transfers:
            dma += p.end - p.start
    return Spent(found, dma)


# ---- looking ------------------------------------------------------------------------------------


def executed(timeline: Timeline) -> Iterator[Executed]:
    """Everything that takes time."""
    for core in timeline.cores:
        for at, i in enumerate(core.graph.executed):
            if at not in core.dropped:
                yield core, at, i


def durations(found: Iterable[Executed]) -> dict[str, float]:
    """By line, the ns of some instructions."""
    by_line: dict[str, float] = {}
    for core, at, i in found:
        line = core.graph.line(i.location)
        by_line[line] = by_line.get(line, 0.0) + core.end[at] - core.start[at]
    return by_line


def busy_ns(core: CoreTimeline) -> dict[str, float]:
    """By compute engine, how long it works."""
    busy: dict[str, float] = {}
    for at, i in enumerate(core.graph.executed):
        if at not in core.dropped and i.engine not in ("dma", "cc"):
            took = core.busy_end.get(at, core.end[at]) - core.start[at]
            busy[i.engine] = busy.get(i.engine, 0.0) + took
    return busy


def distinct(timeline: Timeline) -> list[Part]:
    """What cores execute, each once."""
    return list({id(part.graph): part for part in timeline.launch.parts}.values())


def costliest(lines: Mapping[str, float], spent: Spent) -> list[str]:
    """The lines that matter most, by critical time, then by their ns."""
    ordered = sorted(lines, key=lambda x: (-spent.lines.get(x, 0.0), -lines[x], x))
    return ordered[:LINES]


def critical(lines: Mapping[str, float], spent: Spent) -> list[str]:
    """The same of those that take critical time."""
    return costliest({x: ns for x, ns in lines.items() if spent.lines.get(x)}, spent)


# ---- changing -----------------------------------------------------------------------------------


def _locations(program: Program, lines: Collection[str]) -> set[int]:
    """Numbers of a program's locations that are among these lines."""
    return {n for n in range(len(program.locations)) if program.where(n) in lines}


def rewritten(
    lines: Collection[str],
    other: Callable[[Instruction], Instruction | None],
    arch: Arch,
    every: int = 1,
) -> Change:
    """Instructions of some lines become others, if there is one, or each second of these."""

    def change(_: int, part: Part) -> Part:
        graph, of = part.graph, _locations(part.graph.program, lines)
        found = [other(i) for i in instructions(graph.program.body) if i.location in of]
        others = {i.ordinal: i for i in list(filter(None, found))[::every]}
        program = replace(graph.program, body=list(others.values()))
        fixed = describe(OrderGraph(program, tensors=graph.tensors), arch, part.plan)
        executed = [others.get(i.ordinal, i) for i in graph.executed]
        return Part(replace(graph, executed=executed), part.plan, {**part.fixed, **fixed})

    return change


def refixed(lines: Collection[str], other: Callable[[Fixed], Fixed]) -> Change:
    """Instructions of some lines cost something else."""

    def change(_: int, part: Part) -> Part:
        of = _locations(part.graph.program, lines)
        ordinals = {i.ordinal for i in part.graph.executed if i.location in of}
        return part._replace(fixed={**part.fixed, **{n: other(part.fixed[n]) for n in ordinals}})

    return change
