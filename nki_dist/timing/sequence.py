"""Launches in a row: one line of simulated time, on which they follow each other.

A world's cores take launches in the order of the program, one at a time, and all of them take part:
a launch starts a gap after the end of the one before it. The host is taken to have queued it by
then. What equal launches take is known once, so a line of a million is a column of numbers.

Its band is the sum of the launches' lower ends, and of their upper ends: times of one kernel are
all wrong by the same factor, so nothing cancels, and how far errors of different kernels go
together hasn't been measured; the sum of the ends is right if they do, and else too wide.

Doesn't model what the host does between launches, copies from and to it, and cores that start apart.
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
        sources = arch.sources()
        said = f"{sources['launch_gap_ns']}; at most: {sources['launch_gap_most_ns']}"
        return Gap(between, between, max(between, most), said)
    if isinstance(us, bool) or not isinstance(us, (int, float)) or not 0 <= us < inf:
        raise LaunchError(
            f"gap_us={us!r}; must be microseconds, 0 or more, or None for what is published",
            code="world-option",
        )
    return Gap(us, us, us, "given: gap_us of the session")


@dataclass(frozen=True)
class KernelTime:
    """What the launches of one kernel take, or all launches of a session.

    Attributes:
        name: the kernel's.
        launches: how many there were.
        device_us: they took together, each with its start and end on the device; of all launches,
            with the gaps between them.
        share: of the whole session.
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
    """

    def __init__(
        self, names: Sequence[str], profiles: Sequence[Profile], order: NDArray[np.intp], gap: Gap
    ) -> None:
        self.names, self.profiles, self.order, self.gap = names, profiles, order, gap
        self.counts: list[int] = np.bincount(order, minlength=len(profiles)).tolist()
        self.took_us = np.array([p.device_us for p in profiles], np.float64)[order]
        # The start of one is the end of the one before, to the bit, where there is no gap.
        self.start_us = np.cumsum(np.concatenate(([0.0], self.took_us + gap.us)))[: len(order)]

    @property
    def device_us(self) -> float:
        """The end of the last launch."""
        return float(self.start_us[-1] + self.took_us[-1]) if len(self.order) else 0.0

    @property
    def low_us(self) -> float:
        """The lower end of the band around `device_us`."""
        return self._sum([p.low_us for p in self.profiles]) + self._gaps * self.gap.low_us

    @property
    def high_us(self) -> float:
        """The upper end of the band around `device_us`."""
        return self._sum([p.high_us for p in self.profiles]) + self._gaps * self.gap.high_us

    @property
    def _gaps(self) -> int:
        return max(len(self.order) - 1, 0)

    def _sum(self, values: Sequence[float]) -> float:
        """Over all launches."""
        return sum(count * value for count, value in zip(self.counts, values, strict=True))

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
        busy = [(count * p.total_us / (took or 1.0), p) for count, p in mine]
        return KernelTime(
            name,
            sum(count for count, _ in mine),
            took,
            took / self.device_us if took else 0.0,
            sum(share * p.mfu for share, p in busy),
            sum(share * p.mbu for share, p in busy),
            sum(count * p.critical.get("cc", 0.0) for count, p in mine) / (took or 1.0),
            sum(count * p.flops for count, p in mine),
            sum(count * (p.hbm_read + p.hbm_written) for count, p in mine),
        )

    def worth_advice(self, n: int, most: float = inf) -> bool:
        """Whether something about a distinct launch could be 1 % of the line.

        Args:
            most: instructions of launches that are looked at.
        """
        p = self.profiles[n]
        large = self.counts[n] * p.device_us >= LEAST * self.device_us
        return large and p.instructions <= most

    def advice(self, most: float = inf) -> list[Finding]:
        """What would make the line shorter by at least 1 %, what saves most first.

        Args:
            most: instructions of launches that are looked at.
        """
        found = self._starts()
        for n, (name, p) in enumerate(zip(self.names, self.profiles, strict=True)):
            for f in p.advice() if self.worth_advice(n, most) else ():
                text = f"{name}, {self.counts[n]:,} of the launches: {f.text}"
                found.append(replace(f, text=text, saves_us=f.saves_us * self.counts[n]))
        found = [replace(f, share=f.saves_us / self.device_us) for f in found]
        worth = [f for f in found if f.share >= LEAST]
        return sorted(worth, key=lambda f: (-f.saves_us, f.rule, f.text))[:_FINDINGS]

    def _starts(self) -> list[Finding]:
        """What the launches after the first spend on starting and ending, and between them."""
        around = [p.overhead_us for p in self.profiles]
        saves = self._sum(around) - max(around, default=0.0) + self._gaps * self.gap.us
        spent = sorted(range(len(around)), key=lambda n: -around[n] * self.counts[n])
        lines = [p.lines[0].location for p in (self.profiles[n] for n in spent[:3]) if p.lines]
        text = (
            f"{len(self.order):,} launches start and end on the device, {saves:,.1f} us more than "
            "one; a kernel that does the work of several does that once"
        )
        found = Finding("many launches", text, lines, saves, 0.0, "NKL: transformer_tkg")
        return [found] if self._gaps and lines else []
