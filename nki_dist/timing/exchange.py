"""Whom instructions that talk to other cores wait for in simulated time, and how long that takes.

A rule turns one such instruction into the messages it sends and awaits; the replay matches them by
(source, target, channel, sequence), as the cores themselves do. What goes on within a rank is
declared by the instruction itself (`isa.effects.Meets`). Rules of collectives are above this
package, in `nki_dist.collectives.timing`.

Doesn't model: contention of messages with the DMA traffic of either core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from nki_dist.arch import Arch
from nki_dist.arch.facts import FrozenMap
from nki_dist.forks import cached_property
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.effects import Exchange
from nki_dist.program import Instruction
from nki_dist.timing.timeline import Seat


class Seats(list[Seat]):
    """The seats of a launch, which don't change any more."""

    @cached_property
    def ranks(self) -> dict[int, dict[int, int]]:
        """By rank: number within it -> number over the launch."""
        found: dict[int, dict[int, int]] = {}
        for n, p in enumerate(self):
            found.setdefault(p.rank, {})[p.core] = n
        return found


Rule: TypeAlias = Callable[[Instruction, int, Seats, Arch], Exchange]


def _within_rank(i: Instruction, me: int, seats: Seats, arch: Arch) -> Exchange:
    """What the instruction's own file says, by number within its rank."""
    peers = seats.ranks[seats[me].rank]
    meets = INSTRUCTIONS[i.opcode].meets
    assert meets is not None and meets.time is not None
    what = meets.time(i, seats[me].core, len(peers), arch)
    sends, receives = (tuple(peers[c] for c in side) for side in (what.sends, what.receives))
    return replace(what, sends=sends, receives=receives)


EXCHANGES: Final[Mapping[str, Rule]] = FrozenMap(
    {
        name: _within_rank
        for name, spec in INSTRUCTIONS.items()
        if spec.meets is not None and spec.meets.time is not None
    }
)
