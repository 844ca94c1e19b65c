"""The order in which a program's instructions begin, and with it when its storages are in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nki_dist.linking.lanes import Planner
from nki_dist.linking.linked import Linked, LinkedExchange, LinkedLoop, Segment
from nki_dist.linking.memory import Life
from nki_dist.ops.place import Space


@dataclass
class Laned:
    """A straight run of instructions on lanes, in the order in which they begin.

    Attributes:
        lane_of: of each.
        births: which of them begin the lives of storages.
        needs: those before it that each needs.
        touched: storages and panels that each touches.
    """

    runs: list[Any]
    instructions: list[Any]
    lane_of: list[int]
    births: frozenset[int]
    needs: list[list[int]]
    touched: list[Iterable[Space]]


def on_lanes(block: Sequence[Any], planner: Planner) -> tuple[list[Any], bool]:
    """The same block with lanes where they gain, and whether there are some."""
    found, some = [], False
    for item in block:
        if isinstance(item, Segment) and (plan := planner.plan(item)) is not None:
            lanes, begins, needs = plan
            order = sorted(range(len(lanes)), key=lambda k: (begins[k], k))
            at = {k: n for n, k in enumerate(order)}
            item = Laned(
                [item.steps[k] for k in order],
                [item.instructions[k] for k in order],
                [lanes[k] for k in order],
                frozenset(n for n, k in enumerate(order) if k in item.births),
                [[at[d] for d in needs[k]] for k in order],
                [planner.spaces(item.steps[k]) for k in order],
            )
            some = True
        elif isinstance(item, LinkedLoop):
            body, inner = on_lanes(item.body, planner)
            item, some = LinkedLoop(item.loop, body), some or inner
        found.append(item)
    return found, some


def lives(linked: Linked, block: Sequence[Any], planner: Planner) -> dict[Any, Life]:
    """When each local storage and each panel is in use, by space, if a program runs like this."""
    found: dict[Any, list[int]] = {}  # first, last, lanes of both
    at_ordinal: dict[int, int] = {}
    for at, (touched, i, lane) in enumerate(_nodes(block, planner)):
        at_ordinal.setdefault(i.ordinal, at)
        for space in touched:
            life = found.get(space)
            if life is None:
                found[space] = [at, at, lane, lane]
            else:
                life[1], life[3] = at, lane
    for s in linked.program.storages:
        if s.role != "local" or s.first < 0:
            continue
        ends = at_ordinal.get(s.first, 0), at_ordinal.get(s.last, 0)
        life = found.setdefault(("storage", s.number), [*ends, 0, 0])
        if ends[0] < life[0]:
            life[0], life[2] = ends[0], 0
        if ends[1] > life[1]:
            life[1], life[3] = ends[1], 0
    return {space: Life(*life) for space, life in found.items()}


def _nodes(block: Sequence[Any], planner: Planner) -> Iterator[tuple[Iterable[Space], Any, int]]:
    for item in block:
        if isinstance(item, LinkedLoop):
            yield from _nodes(item.body, planner)
        elif isinstance(item, LinkedExchange):
            yield (), item.instruction, 0
        elif isinstance(item, Laned):
            yield from zip(item.touched, item.instructions, item.lane_of, strict=True)
        else:
            for run, i in zip(item.steps, item.instructions, strict=True):
                yield planner.spaces(run), i, 0


def buffer_needs(laned: Laned, buffer_of: Mapping[Space, Any]) -> list[list[int]]:
    """The needs of instructions on lanes, with those that come of storages sharing memory: who has
    a buffer next needs the last of each lane that had it before."""
    holds: dict[Any, Space] = {}  # by buffer
    last: dict[Space, dict[int, int]] = {}  # by storage, the last instruction of each lane
    before: dict[Space, dict[int, int]] = {}  # the same of who had its buffer last
    found = []
    for k, (touched, lane, needs) in enumerate(zip(laned.touched, laned.lane_of, laned.needs)):
        more = set(needs)
        for space in touched:
            buffer = buffer_of.get(space)
            if buffer is None:
                continue
            held = holds.get(buffer)
            if held != space:
                holds[buffer] = space
                if held is not None:
                    before[space] = last[held]
            for of, n in before.get(space, {}).items():
                if of != lane:
                    more.add(n)
            last.setdefault(space, {})[lane] = k
        found.append(sorted(more))
    return found
