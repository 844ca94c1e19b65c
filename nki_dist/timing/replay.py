"""Works out when everything in a launch happens in simulated time, by replaying its programs.

What happens when is worked out in `events`; what an instruction costs, in `core`, `engines` and
`dma`. Invariant: no host clock takes part, so the same launch gives the same bits. Doesn't model
instruction fetch, loop and branch instructions, semaphore counts. Follows: A2 "Engine
synchronisation", DMAO, DMAB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nki_dist.arch import Arch
from nki_dist.errors import LaunchError
from nki_dist.program import Program
from nki_dist.program.uncollected import uncollected
from nki_dist.timing.compiled import Plan, compiled
from nki_dist.timing.events import Events
from nki_dist.timing.exchange import EXCHANGES, Rule, Seats
from nki_dist.timing.fixed import Part, describe
from nki_dist.timing.order import order
from nki_dist.timing.representatives import by_representatives
from nki_dist.timing.schedules import COMPILED, PROGRAM, check_schedule
from nki_dist.timing.timeline import Seat, Timeline, default_placement


@dataclass(frozen=True)
class Launch:
    """A launch, ready to be replayed. Holds what its timeline holds, no copies.

    Attributes:
        parts: one per core.
    """

    parts: Sequence[Part]
    seats: Seats
    arch: Arch
    exchanges: Mapping[str, Rule]
    schedule: str

    def replayed(self) -> Timeline:
        """Simulated times of all that it executes."""
        timeline = Events(self.parts, self.seats, self.arch, self.exchanges).run()
        timeline.schedule = self.schedule
        timeline.launch = self
        return timeline

    def simulated(self) -> Timeline:
        """The same, with one core replayed for all that do the same at the same time."""
        return by_representatives(self) or self.replayed()

    def total_ns(self, parts: Sequence[Part]) -> float:
        """How long it would take if its cores executed something else."""
        with uncollected():
            return replace(self, parts=parts).simulated().total_ns


def prepared(
    programs: Sequence[Program],
    trips_per_core: Sequence[Sequence[int]],
    arch: Arch,
    placement: Sequence[Seat] | None = None,
    exchanges: Mapping[str, Rule] = EXCHANGES,
    schedule: str = PROGRAM,
) -> Launch:
    """A launch, ready to be replayed.

    Args:
        programs: one per physical core of the launch.
        trips_per_core: for each, the trip counts its executor recorded.
        placement: for each, where it sits; by default ranks follow each other, and neighbours share
            an HBM stack.
        exchanges: a rule for each instruction that waits for other cores.
        schedule: "compiled", with what AWS's compiler is taken to change, or "program".

    Raises:
        LaunchError: the trip counts don't belong to the programs, cores wait for messages that are
            never sent, or there is no such schedule.
    """
    check_schedule(schedule)
    if len(programs) != len(trips_per_core):
        raise LaunchError(
            f"{len(programs)} programs, but trip counts of {len(trips_per_core)}",
            code="profile-trips",
            numbers={"got": len(trips_per_core), "allowed": len(programs)},
        )
    seats = Seats(placement if placement is not None else default_placement(programs, arch))
    parts = []
    # Ranks often execute the same.
    graphs: dict[tuple[int, tuple[int, ...]], Part] = {}
    for program, trips in zip(programs, trips_per_core, strict=True):
        key = (id(program), tuple(trips))
        if key not in graphs:
            graph = order(program, trips)
            plan = compiled(graph, arch) if schedule == COMPILED else Plan()
            graphs[key] = Part(graph, plan, describe(graph, arch, plan))
        parts.append(graphs[key])
    return Launch(parts, seats, arch, exchanges, schedule)
