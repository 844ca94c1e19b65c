"""Cores that wait for each other in simulated time: whoever comes last decides for all.

Invariant: the n-th rendezvous of one core on a channel with certain cores is the n-th of each of
them. That they did the same thing there was checked when it ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nki_dist.timing.core import CoreReplay


@dataclass
class Rendezvous:
    """One rendezvous.

    Attributes:
        who: (core, position), in the order they came.
        last: the one that started last; the lowest number of those that did at the same time.
        started: when it did.
        over: when everybody is done.
    """

    who: list[tuple[int, int]] = field(default_factory=list)
    last: tuple[int, int] = (-1, -1)
    started: float = -1.0
    over: float = 0.0


class OpenRendezvous:
    """The rendezvous of a launch that somebody still waits in."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, tuple[int, ...], int], Rendezvous] = {}
        self._turn: dict[tuple[str, tuple[int, ...], int], int] = {}

    def come(
        self,
        channel: str,
        cores: tuple[int, ...],
        core: int,
        position: int,
        start: float,
        latency: float,
    ) -> Rendezvous | None:
        """A core has started; the rendezvous, if it was the last to come."""
        mine = (channel, cores, core)
        number = self._turn.get(mine, 0)
        self._turn[mine] = number + 1
        key = (channel, cores, number)
        rendezvous = self._open.setdefault(key, Rendezvous())
        rendezvous.who.append((core, position))
        if (start, -core) > (rendezvous.started, -rendezvous.last[0]):
            rendezvous.last, rendezvous.started = (core, position), start
        rendezvous.over = max(rendezvous.over, start + latency)
        if len(rendezvous.who) < len(cores):
            return None
        rendezvous.who.sort()
        return self._open.pop(key)

    def describe(self, replays: Sequence[CoreReplay]) -> list[str]:
        """Who waits in vain, at the end."""
        lines = []
        for (channel, cores, _), rendezvous in sorted(self._open.items()):
            missing = sorted(set(cores) - {core for core, _ in rendezvous.who})
            for core, position in sorted(rendezvous.who):
                i = replays[core].graph.executed[position]
                lines.append(f"core {core} in {i!r} for cores {missing} ({channel})")
        return lines
