"""Launches in a row: one line of simulated time, on which they follow each other.

A world's cores take launches in the order of the program, one at a time, and all of them take part:
a launch starts a gap after the end of the one before it. The host is taken to have queued it by
then. What equal launches take is known once, so a line of a million is a column of numbers.

Its band is the sum of the launches' lower ends, and of their upper ends: times of one kernel are
all wrong by the same factor, so nothing cancels, and how far errors of different kernels go
together hasn't been measured; the sum of the ends is right if they do, and else too wide.

Doesn't model what the host does between launches, copies from and to it, or cores that start
apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nki_dist.arch import Arch
from nki_dist.errors import LaunchError
from nki_dist.forks import cached_property
from nki_dist.timing.advice import LEAST, Finding
from nki_dist.timing.report import Profile

_FINDINGS: Final = 10


class Gap(NamedTuple):
    """The time between the end of a launch and the start of the next, with its band, in us."""

    us: float
    low_us: float
    high_us: float
    source: str


def gap_between(arch: Arch, us: float | None = None) -> Gap:
    """The gap between launches on a platform.

    Args:
        us: what is measured or wanted instead, which is then taken as it is.

    Raises:
        LaunchError: that isn't a time.
    """
    if us is None:
        between, most = arch.launch_gap_ns / 1000, arch.launch_gap_most_ns / 1000
        said = (arch.sources()[name] for name in ("launch_gap_ns", "launch_gap_most_ns"))
        return Gap(between, between, max(between, most), "; at most: ".join(said))
    if isinstance(us, bool) or not isinstance(us, (int, float)) or not 0 <= us < inf:
        raise LaunchError(
            f"gap_us={us!r}; must be microseconds, 0 or more, or None for what is published",
            code="world-option",
        )
    return Gap(us, us, us, "given: gap_us of the session")


class Launch(NamedTuple):
    """A launch of a line: its kernel, its start and its time on the device in us, its profile."""

    name: str
    start_us: float
    device_us: float
    profile: Profile


@dataclass(frozen=True)
class KernelTime:
    """What the launches of one kernel take, or all launches of a line.

    Attributes:
        name: the kernel's.
        launches: how many there were.
        device_us: they took together, each with its start and end on the device; of all launches,
            with the gaps between them.
        share: of the whole line.
        mfu, mbu: shares of the peak FLOPs and of the HBM bandwidth over that time.
        collectives: share of that time in which the critical path was in collectives.
        flops: of the Tensor engines.
        hbm_bytes: read and written.
    """

    name: str
    launches: int
    device_us: float
    share: float
    mfu: float
    mbu: float
    collectives: float
    flops: int
    hbm_bytes: int


class SequenceProfile:
    """The profile of launches in a row.

    Args:
        names, profiles: of each distinct launch.
        order: for each launch, in order, which one it is.
        gap: between launches.

    Attributes:
        counts: how often there was each of the distinct launches.
        start_us, took_us: of every launch.
        device_us: the end of the last launch.
        low_us, high_us: the ends of the band around it.
    """

    def __init__(
        self, names: Sequence[str], profiles: Sequence[Profile], order: NDArray[np.intp], gap: Gap
    ) -> None:
        self.names, self.profiles, self.order, self.gap = names, profiles, order, gap
        self.counts: list[int] = np.bincount(order, minlength=len(profiles)).tolist()
        self.took_us = np.array([p.device_us for p in profiles], np.float64)[order]
        # The start of one is the end of the one before, to the bit, where there is no gap.
        self.start_us = np.cumsum(np.concatenate(([0.0], self.took_us + gap.us)))[: len(order)]
        self.device_us = float(self.start_us[-1] + self.took_us[-1]) if len(order) else 0.0
        self._gaps = max(len(order) - 1, 0)
        self.low_us = self._sum([p.low_us for p in profiles]) + self._gaps * gap.low_us
        self.high_us = self._sum([p.high_us for p in profiles]) + self._gaps * gap.high_us

    def _sum(self, values: Sequence[float]) -> float:
        """Over all launches."""
        return sum(count * value for count, value in zip(self.counts, values, strict=True))

    @cached_property
    def launches(self) -> list[Launch]:
        """All of them, in order."""
        rows = zip(self.order.tolist(), self.start_us.tolist(), self.took_us.tolist(), strict=True)
        return [Launch(self.names[n], at, us, self.profiles[n]) for n, at, us in rows]

    def by_kernel(self) -> list[KernelTime]:
        """The time of each kernel, the longest first."""
        which: dict[str, list[int]] = {}
        for n, name in enumerate(self.names):
            which.setdefault(name, []).append(n)
        found = [self._kernel(name, mine) for name, mine in which.items()]
        return sorted(found, key=lambda k: -k.device_us)

    def total(self) -> KernelTime:
        """All launches together."""
        return self._kernel("all", range(len(self.names)), self.device_us)

    def _kernel(self, name: str, which: Sequence[int], us: float | None = None) -> KernelTime:
        mine = [(self.counts[n], self.profiles[n]) for n in which]
        took = sum(count * p.device_us for count, p in mine) if us is None else us
        least = took or 1.0  # nothing was launched
        return KernelTime(
            name=name,
            launches=sum(count for count, _ in mine),
            device_us=took,
            share=took / (self.device_us or 1.0),
            mfu=sum(count * p.total_us * p.mfu for count, p in mine) / least,
            mbu=sum(count * p.total_us * p.mbu for count, p in mine) / least,
            collectives=sum(count * p.critical.get("cc", 0.0) for count, p in mine) / least,
            flops=sum(count * p.flops for count, p in mine),
            hbm_bytes=sum(count * (p.hbm_read + p.hbm_written) for count, p in mine),
        )

    def findings(self, n: int, most: float = inf) -> list[Finding]:
        """What is advised about a distinct launch; nothing if none could be 1 % of the line.

        Args:
            most: instructions of launches that are looked at.
        """
        p = self.profiles[n]
        large = self.counts[n] * p.device_us >= LEAST * self.device_us
        return p.advice() if large and p.instructions <= most else []

    def advice(self, most: float = inf) -> list[Finding]:
        """What would make the line shorter by at least 1 %, what saves most first.

        Args:
            most: instructions of launches that are looked at.
        """
        found = [*self._starts()]
        for n, name in enumerate(self.names):
            for f in self.findings(n, most):
                text = f"{name}, {self.counts[n]:,} of the launches: {f.text}"
                found.append(replace(f, text=text, saves_us=f.saves_us * self.counts[n]))
        found = [replace(f, share=f.saves_us / self.device_us) for f in found]
        worth = [f for f in found if f.share >= LEAST]
        return sorted(worth, key=lambda f: (-f.saves_us, f.rule, f.text))[:_FINDINGS]

    def _starts(self) -> list[Finding]:
        """What the launches after the first spend on starting and ending, and between them."""
        overheads = [p.overhead_us for p in self.profiles]
        saves = self._sum(overheads) - max(overheads, default=0.0) + self._gaps * self.gap.us
        most = sorted(range(len(overheads)), key=lambda n: -overheads[n] * self.counts[n])
        lines = [self.profiles[n].lines[0].location for n in most[:3] if self.profiles[n].lines]
        text = (
            f"{len(self.order):,} launches start and end on the device, {saves:,.1f} us more than "
            "one; a kernel that does the work of several does that once"
        )
        source = "AWS's transformer_tkg: several layers in a kernel for fewer launches"
        found = Finding("many launches", text, lines, saves, 0.0, source)
        return [found] if self._gaps and lines else []
