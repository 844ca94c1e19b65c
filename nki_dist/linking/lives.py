"""The order in which a program's instructions begin, and with it when its storages are in use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nki_dist.linking.lanes import Planner
from nki_dist.linking.linked import Linked, LinkedLoop, Meeting, Straight
from nki_dist.linking.memory import Life


@dataclass
class Laned:
    """A straight run of instructions on lanes, in the order in which they begin.

    Attributes:
        lane_of: of each.
        births: which of them begin the lives of storages.
    """

    runs: list[Any]
    instructions: list[Any]
    lane_of: list[int]
    births: frozenset[int]


def on_lanes(block: Sequence[Any], planner: Planner) -> tuple[list[Any], bool]:
    """The same block with lanes where they gain, and whether there are some."""
    found, some = [], False
    for item in block:
        if isinstance(item, Straight) and (plan := planner.plan(item)) is not None:
            lanes, begins = plan
            order = sorted(range(len(lanes)), key=lambda k: (begins[k], k))
            item = Laned(
                [item.runs[k] for k in order],
                [item.instructions[k] for k in order],
                [lanes[k] for k in order],
                frozenset(n for n, k in enumerate(order) if k in item.births),
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
    for at, (run, i, lane) in enumerate(_nodes(block)):
        at_ordinal.setdefault(i.ordinal, at)
        touched = () if run is None else planner.touched(run)
        for touch in touched:
            if touch.space[0] not in ("storage", "panel"):
                continue
            life = found.get(touch.space)
            if life is None:
                found[touch.space] = [at, at, lane, lane]
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


def _nodes(block: Sequence[Any]) -> Iterator[tuple[Any, Any, int]]:
    for item in block:
        if isinstance(item, LinkedLoop):
            yield from _nodes(item.body)
        elif isinstance(item, Meeting):
            yield None, item.instruction, 0
        elif isinstance(item, Laned):
            yield from zip(item.runs, item.instructions, item.lane_of, strict=True)
        else:
            yield from ((run, i, 0) for run, i in zip(item.runs, item.instructions, strict=True))


__all__ = ["Laned", "lives", "on_lanes"]
