"""A profile as text."""

from __future__ import annotations

from pathlib import PurePath
from textwrap import fill
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nki_dist.timing.report import Profile

_LINES: Final = 12  # kernel lines shown
_CORES: Final = 4  # cores whose engines are shown


def render(p: Profile) -> str:
    """The table that `str(profile)` gives."""
    parts = [_head(p), _engines(p), _critical(p), _lines(p), _doubts(p)]
    return "\n\n".join(part for part in parts if part)


def _head(p: Profile) -> str:
    cores = "1 core" if p.cores == 1 else f"{p.cores} cores"
    peak = f" ({p.mfu:.1%} of peak)" if p.flops else ""
    return "\n".join(
        [
            f"{p.kernel} on {p.platform}, {cores}: {p.total_us:,.3f} us simulated",
            f"  {p.instructions:,} instructions; {p.tflops:,.2f} TFLOPS{peak}",
            f"  HBM: {_bytes(p.hbm_read)} read, {_bytes(p.hbm_written)} written "
            f"({p.mbu:.1%} of bandwidth)",
            f"  not included: about {p.overhead_us:,.0f} us around a kernel on the device",
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
