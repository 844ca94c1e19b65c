"""A session: the launches of a world in a row, on one line of simulated time.

`with world.session() as s:` takes down which launches there were; that costs next to nothing, and
time is worked out when it is asked for, once for each distinct launch. Invariant: launches of the
same compiled kernel whose loops iterated equally often are one entry, whatever their number.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as List
from dataclasses import asdict
from os import PathLike
from typing import Any

import numpy as np

from nki_dist.compiler.compiled import Compiled
from nki_dist.launcher.estimates import has_loops
from nki_dist.launcher.profiles import Executed
from nki_dist.program import Program
from nki_dist.runtime.group import CoreReport
from nki_dist.runtime.hosts import forced_algorithm
from nki_dist.timing import COMPILED, Profile, check_schedule
from nki_dist.timing.advice import Finding
from nki_dist.timing.report import ADVISED
from nki_dist.timing.sequence import KernelTime, Launch, SequenceProfile, gap_between
from nki_dist.timing.sequence_trace import write_sequence_trace
from nki_dist.topology.topology import Topology


class Sequence:
    """Launches of a world and their simulated time, in microseconds.

    All launches are taken to be queued by the host in time, so that one starts `gap_us` after the
    end of the one before; that is 0 by default, as published, with a band of 20.

    Args:
        world: whose launches they are.
        gap_us: between the end of a launch and the start of the next; what is published by default.
        schedule: "compiled" or "program"; see `nki.profile`.

    Attributes:
        open: whether launches that are made now belong to it.

    Raises:
        LaunchError: the gap isn't a time, or there is no such schedule.
    """

    def __init__(self, world: Any, gap_us: float | None = None, schedule: str = COMPILED) -> None:
        self._world = world
        self._topology: Topology = world.topology
        self._gap = gap_between(self._topology.arch, gap_us)
        self._schedule = check_schedule(schedule)
        self._loops: dict[int, bool] = {}  # whether a compiled kernel has any
        self._numbers: dict[Any, int] = {}  # of distinct launches
        # Of each distinct launch; profiles are made when somebody asks. The kernels are kept with
        # them, so that no other gets the id of one.
        self._names: list[str] = []
        self._launched: list[Executed] = []
        self._profiles: list[Profile] = []
        self._order = array("I")
        self._profile: SequenceProfile | None = None
        self.open = False

    def __enter__(self) -> Sequence:
        self.open = True
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        """Wait for the launches; those of a body that failed are left alone."""
        self.open = False
        if kind is None and hasattr(self._world, "wait"):
            self._world.wait()

    def add(
        self,
        name: str,
        compiled: Compiled,
        reports: List[CoreReport],
        programs: List[Program] | None = None,
    ) -> None:
        """Take down a launch that has ended; in the order in which launches were made.

        Args:
            name: of the kernel.
            reports: of its cores, in any order.
            programs: of every core, if ranks ran different ones.
        """
        loops = self._loops.get(id(compiled))
        if loops is None:
            loops = self._loops[id(compiled)] = has_loops(compiled)
        trips: tuple[tuple[int, ...], ...] = ()
        if loops:
            trips = tuple([tuple(r.trips) for r in sorted(reports, key=lambda r: r.core)])
        which = None if programs is None else tuple(map(id, programs))
        key = (id(compiled), name, trips, which)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._names)
            every = trips or ((),) * (len(compiled.programs) * self._topology.ranks)
            algorithm = getattr(self._world, "_algorithm", "") or forced_algorithm()
            self._names.append(name)
            self._launched.append(Executed(self._topology, algorithm, compiled, every, programs))
        self._order.append(number)

    @property
    def profile(self) -> SequenceProfile:
        """The times of all launches that have ended."""
        if self._profile is None or len(self._profile.order) != len(self._order):
            order = np.array(self._order, np.intp)
            for launch in self._launched[len(self._profiles) :]:
                self._profiles.append(launch.profile(self._schedule))
            self._profile = SequenceProfile(self._names, self._profiles, order, self._gap)
        return self._profile

    @property
    def launches(self) -> list[Launch]:
        """The launches in order."""
        return self.profile.launches

    @property
    def device_us(self) -> float:
        """The end of the last launch on the device; the first starts at 0."""
        return self.profile.device_us

    @property
    def low_us(self) -> float:
        """The lower end of the band around `device_us`: the sum of the launches' lower ends."""
        return self.profile.low_us

    @property
    def high_us(self) -> float:
        """The upper end of the band around `device_us`: the sum of the launches' upper ends."""
        return self.profile.high_us

    def by_kernel(self) -> list[KernelTime]:
        """What each kernel takes of the time, the longest first."""
        return self.profile.by_kernel()

    def total(self) -> KernelTime:
        """What all launches take together."""
        return self.profile.total()

    def advice(self) -> list[Finding]:
        """What would make the line shorter by 1 % or more, what saves most first; at most ten.

        Savings of a launch are those that `Profile.advice` finds by replaying it, times its number.
        """
        return self.profile.advice()

    def write_trace(self, path: str | PathLike[str]) -> None:
        """Write a trace for ui.perfetto.dev: all launches, and the engines in one of each kind.

        What a large one leaves out is listed in its `otherData`.
        """
        write_sequence_trace(self.profile, self._topology.arch.instance, path)

    def write_report(self, path: str | PathLike[str]) -> None:
        """Write one HTML file: the line of launches, the kernels, and what bounds each of them.

        It fetches nothing when it is opened. Launches so large that advice takes minutes get none.
        """
        from nki_dist.report.sequence import write_sequence_page

        advice = [asdict(finding) for finding in self.profile.advice(ADVISED)]
        labels = [self._label(launch) for launch in self._launched]
        write_sequence_page(path, self.profile, labels, advice, self._topology)

    def _label(self, launch: Executed) -> str:
        """What tells a launch from others of kernels of its name."""
        inputs, loops = launch.compiled.inputs, self._loops[id(launch.compiled)]
        shapes = [f"{s.name} {'×'.join(map(str, s.shape))} {s.dtype}" for s in inputs]
        return ", ".join(shapes + [f"{sum(map(sum, launch.trips)):,} rounds of loops"] * loops)

    @property
    def _title(self) -> str:
        return f"{len(self._order):,} launches on {self._topology.arch.instance}"

    def __repr__(self) -> str:
        return f"<Session of {self._title}>"

    def __str__(self) -> str:
        band = f"band: {self.low_us:,.1f} to {self.high_us:,.1f} us"
        rows = [
            f"{self._title}: {self.device_us:,.3f} us simulated; {band}",
            "  launches     device us  share    MFU    MBU  collectives  kernel",
        ]
        for k in [*self.by_kernel(), self.total()]:
            shares = f"{k.share:>7.1%}{k.mfu:>7.1%}{k.mbu:>7.1%}{k.collectives:>13.1%}"
            rows.append(f"{k.launches:>10,}{k.device_us:>14,.3f}{shares}  {k.name}")
        return "\n".join(rows)
