"""`Profile`: what a launch did with its simulated time, as a table, a dict or a file.

`total_us` doesn't include the time before and after a kernel on the device (`overhead_us`),
`device_us` does; the host's isn't part of either. Terms follow the EXP glossary: MFU is the share
of peak FLOPs, MBU that of HBM bandwidth. What writes files is imported by what writes one: few
programs do, and all would start later for it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from os import PathLike
from pathlib import PurePath
from textwrap import fill
from typing import Any, Final

from nki_dist.forks import cached_property
from nki_dist.timing.advice import Finding, advise
from nki_dist.timing.band import HELD, band, shares
from nki_dist.timing.compiled.plan import Change
from nki_dist.timing.perfetto import write_trace
from nki_dist.timing.schedules import COMPILED
from nki_dist.timing.timeline import Timeline

VERSION: Final = 1
_LISTS: Final = ("engines", "lines", "changes")
_LINES: Final = 12  # kernel lines shown
_CORES: Final = 4  # cores whose engines are shown
_CHANGES: Final = 7  # of the compiler, shown
ADVISED: Final = 200_000  # instructions of a launch whose report has advice


@dataclass(frozen=True)
class EngineUse:
    """One engine of one core; "dma" is the average of its DMA engines."""

    core: int
    engine: str
    instructions: int
    busy_us: float
    utilisation: float


@dataclass(frozen=True)
class LineUse:
    """One kernel line, per instruction and engine, over all cores.

    `total_us` sums durations, which overlap where DMA or several cores are involved; `critical_us`
    is the part of the critical path spent on it, waits included.
    """

    location: str
    opcode: str
    engine: str
    count: int
    total_us: float
    longest_us: float
    critical_us: float


@dataclass(frozen=True)
class Profile:
    """The profile of one launch.

    Attributes:
        total_us: from the start of the kernel on the device to its last result.
        overhead_us: what the device spends before and after a kernel, not part of `total_us`.
        instructions: executed by the kernel, those left out by the compiler included.
        engines: use of every engine of every core.
        lines: by time, the longest first.
        critical: microseconds of the critical path by what they were spent on; sums to the total.
        hbm_read: bytes.
        hbm_written: bytes.
        flops: floating-point operations of the Tensor engine.
        all_flops: those of all engines.
        tflops: achieved by the Tensor engines.
        mfu: their share of the peak for the dtypes used, over all cores.
        mbu: share of the bandwidth of the HBM stacks used.
        beta1: of a kernel of Beta 1, which AWS's compiler orders and places as it sees fit.
        schedule: "compiled" if engines and queues take their instructions as AWS's compiler is
            taken to order them, "program" if as written.
        changes: what that compiler is taken to change, by kernel line; the most bytes first. What
            is spilled and reloaded is part of `hbm_written` and `hbm_read`.
        assumed_us: what of the time on the device rests on costs and figures nobody publishes.
        assumed_costs: instructions whose cost nobody publishes, with how often each ran.
        assumed_parameters: figures of the platform that were assumed and used, with the reason.
        timeline: when everything happened.
    """

    kernel: str
    platform: str
    cores: int
    total_us: float
    overhead_us: float
    instructions: int
    engines: list[EngineUse]
    lines: list[LineUse]
    critical: dict[str, float]
    hbm_read: int
    hbm_written: int
    flops: int
    all_flops: int
    tflops: float
    mfu: float
    mbu: float
    beta1: bool
    schedule: str
    changes: list[Change]
    assumed_us: float
    assumed_costs: dict[str, int]
    assumed_parameters: dict[str, str]
    timeline: Timeline = field(repr=False, compare=False)

    @property
    def device_us(self) -> float:
        """What a device profiler would show: the kernel with its start and end, in us."""
        return self.total_us + self.overhead_us

    @property
    def low_us(self) -> float:
        """The lower end of the band around `device_us`, in us; see docs/accuracy.md."""
        return self._band[0]

    @property
    def high_us(self) -> float:
        """The upper end of the band around `device_us`, in us; see docs/accuracy.md."""
        return self._band[1]

    @property
    def _band(self) -> tuple[float, float]:
        spent = shares(self.critical, self.overhead_us, self.assumed_us, self.beta1)
        return band(self.device_us, spent)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: everything but the timeline."""
        names = [f.name for f in fields(self) if f.name not in ("timeline", *_LISTS)]
        shallow = {name: getattr(self, name) for name in names}
        lists = {name: [asdict(x) for x in getattr(self, name)] for name in _LISTS}
        ends = {"device_us": self.device_us, "low_us": self.low_us, "high_us": self.high_us}
        return {"version": VERSION, **ends, **shallow, **lists}

    def save(self, path: str | PathLike[str]) -> None:
        """Write `to_dict()` as JSON."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.to_dict(), file, indent=1)
            file.write("\n")

    def write_trace(self, path: str | PathLike[str]) -> None:
        """Write a trace for ui.perfetto.dev or chrome://tracing."""
        write_trace(self.timeline, path)

    def write_report(self, path: str | PathLike[str]) -> None:
        """Write one HTML file with everything: timeline, memory, source, roofline, tables.

        It fetches nothing when it is opened. The kernel's source is read from its files now, and
        `advice()` is worked out unless the launch is so large that this would take minutes.
        """
        from nki_dist.report.page import write_page

        small = self.instructions <= ADVISED
        advice = [asdict(finding) for finding in (self.advice() if small else ())]
        write_page(path, self.to_dict(), self.timeline, advice)

    def advice(self) -> list[Finding]:
        """What would make the launch faster, what saves most first; at most five findings.

        Each saving is what a replay of the launch without that cost takes less. They don't add up,
        and whether a change keeps the results right isn't looked at. Once worked out, `str()` of
        the profile ends with it.
        """
        return list(self._findings)

    @cached_property
    def _findings(self) -> tuple[Finding, ...]:
        return tuple(advise(self.timeline))

    def summary(self) -> dict[str, Any]:
        """The numbers by the names of Neuron Explorer's `--output-format summary-json`.

        Returns:
            for each rank, by name, the fields of the table `Summary` of its schema; seconds, bytes,
            and for `_percent` fractions from 0 to 1. Those that programs read.
        """
        from nki_dist.report.explorer import summary

        return summary(self.to_dict(), self.timeline)

    def __repr__(self) -> str:
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return (
            f"<Profile of {self.kernel} on {self.platform}, {cores}: {self.total_us:,.3f} us "
            f"simulated, {self.schedule}>"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from nki_dist.report.notebook import notebook_html

        return notebook_html(self.to_dict())

    def __str__(self) -> str:
        parts = [
            _head(self),
            _engines(self),
            _critical(self),
            _changes(self),
            _lines(self),
            _doubts(self),
            _advice(self),
        ]
        return "\n\n".join(part for part in parts if part)


# ---- the table ----------------------------------------------------------------------------------


def _head(p: Profile) -> str:
    cores = "1 core" if p.cores == 1 else f"{p.cores} cores"
    order = "as compiled" if p.schedule == COMPILED else "in program order"
    peak = f" ({p.mfu:.1%} of peak)" if p.flops else ""
    return "\n".join(
        [
            f"{p.kernel} on {p.platform}, {cores}: {p.total_us:,.3f} us simulated, {order}",
            f"  {p.instructions:,} instructions; {p.tflops:,.2f} TFLOPS{peak}",
            f"  HBM: {_bytes(p.hbm_read)} read, {_bytes(p.hbm_written)} written "
            f"({p.mbu:.1%} of bandwidth)",
            f"  about {p.overhead_us:,.0f} us around it on the device: "
            f"{p.device_us:,.3f} us in all",
            f"  band: {p.low_us:,.1f} to {p.high_us:,.1f} us ({HELD})",
        ]
    )


def _bytes(n: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= size:
            return f"{n / size:,.2f} {unit}"
    return f"{n} B"


def _engines(p: Profile) -> str:
    rows = ["core  engine  instructions     busy us   busy"]
    for use in p.engines:
        if use.core < _CORES and use.instructions:
            rows.append(
                f"{use.core:>4}  {use.engine:<7}{use.instructions:>13,}{use.busy_us:>12,.3f}"
                f"{use.utilisation:>7.1%}"
            )
    if p.cores > _CORES:
        rows.append(f"      ... {p.cores - _CORES} more cores")
    return "\n".join(rows)


def _critical(p: Profile) -> str:
    if not p.critical:
        return ""
    rows = ["what bounded it             us  share"]
    for kind, us in p.critical.items():
        rows.append(f"  {kind:<18}{us:>10,.3f}{us / p.total_us:>7.1%}")
    return "\n".join(rows)


def _changes(p: Profile) -> str:
    if not p.changes:
        return ""
    rows = ["what the compiler is taken to change"]
    # Where not all fit, the last row says how many are left.
    shown = p.changes if len(p.changes) <= _CHANGES else p.changes[: _CHANGES - 1]
    for c in shown:
        size = f", {_bytes(c.bytes)}" if c.bytes else ""
        rows.append(f"  {c.what} at {PurePath(c.location).name}: {c.count:,}{size}")
    if len(p.changes) > len(shown):
        rows.append(f"  ... {len(p.changes) - len(shown)} more")
    return "\n".join(rows)


def _lines(p: Profile) -> str:
    if not p.lines:
        return ""
    rows = ["critical us    total us      count  instruction (engine) at line"]
    for line in p.lines[:_LINES]:
        rows.append(
            f"{line.critical_us:>11,.3f}{line.total_us:>12,.3f}{line.count:>11,}  "
            f"{line.opcode} ({line.engine}) at {PurePath(line.location).name}"
        )
    if len(p.lines) > _LINES:
        rows.append(f"... {len(p.lines) - _LINES} more")
    return "\n".join(rows)


def _doubts(p: Profile) -> str:
    rows = []
    if p.assumed_costs:
        costs = ", ".join(f"{name} ({n:,})" for name, n in p.assumed_costs.items())
        rows.append(f"no documented cost, one was assumed: {costs}")
    if p.assumed_parameters:
        rows.append(f"no published figure, one was assumed: {', '.join(p.assumed_parameters)}")
    return "\n".join(fill(row, 100, subsequent_indent="  ") for row in rows)


def _advice(p: Profile) -> str:
    """Shown once somebody asked for it, as it takes several replays."""
    found: tuple[Finding, ...] | None = p.__dict__.get("_findings")
    if found is None:
        return ""
    rows = [fill(str(f).replace("\n", " "), 100, subsequent_indent="    ") for f in found]
    head = "advice: what a replay without it takes less (these don't add up)"
    return "\n  ".join([head, *rows]) if rows else "advice: none that would save 1 %"
