"""What a compiler changes of a program for the sake of time: a `Plan` for the replay."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field

from nki_dist.program import Instruction


@dataclass
class Plan:
    """How a core's order graph is to be replayed.

    Attributes:
        reorders: queues take what is ready; otherwise in the order written.
        dropped: positions that take no time and no queue.
        engines: by ordinal, the engine chosen instead of the one written.
    """

    reorders: bool = False
    dropped: set[int] = field(default_factory=set)
    engines: dict[int, str] = field(default_factory=dict)

    def moved(self, i: Instruction) -> Instruction:
        engine = self.engines.get(i.ordinal)
        if engine is None:
            return i
        i = copy(i)
        i.engine = engine
        return i


def rewritten(graph, table, arch) -> Plan:
    return Plan(reorders=True)
