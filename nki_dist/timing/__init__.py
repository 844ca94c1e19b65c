"""How long a launch would take on a device: its programs are replayed in simulated time.

Executing a kernel records only what its program doesn't say (trip counts of dynamic loops); time is
worked out afterwards by replaying the programs of a launch. So a run that isn't profiled pays
nothing, and a profile is the same on every machine. Invariant: no host clock is read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nki_dist.arch import Arch
from nki_dist.program import Program
from nki_dist.program.uncollected import uncollected
from nki_dist.timing.exchange import EXCHANGES, Rule
from nki_dist.timing.order import OrderGraph, order
from nki_dist.timing.perfetto import write_trace
from nki_dist.timing.replay import prepared
from nki_dist.timing.report import Profile
from nki_dist.timing.schedules import COMPILED, SCHEDULES, check_schedule
from nki_dist.timing.summary import make_profile
from nki_dist.timing.timeline import Seat, Timeline

__all__ = [
    "COMPILED",
    "SCHEDULES",
    "OrderGraph",
    "Profile",
    "Seat",
    "Timeline",
    "check_schedule",
    "make_profile",
    "order",
    "profile_launch",
    "write_trace",
]


@uncollected()
def profile_launch(
    programs: Sequence[Program],
    trips: Sequence[Sequence[int]],
    arch: Arch,
    kernel_name: str,
    placement: Sequence[Seat] | None = None,
    exchanges: Mapping[str, Rule] = EXCHANGES,
    schedule: str = COMPILED,
) -> Profile:
    """The profile of a launch.

    Args:
        programs: one per physical core, ranks one after the other.
        trips: for each, the trip counts its executor recorded.
        placement, exchanges, schedule: see `prepared`.

    Raises:
        LaunchError: the trip counts don't belong to the programs, or there is no such schedule.
    """
    launch = prepared(programs, trips, arch, placement, exchanges, schedule)
    return make_profile(launch.simulated(), kernel_name)
