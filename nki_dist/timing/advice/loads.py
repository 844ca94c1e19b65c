"""Rules about DMA: small pieces, loads that are repeated, descriptors made at run time."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nki_dist.arch import Arch
from nki_dist.timing.advice.suspect import (
    Executed,
    Spent,
    Suspect,
    critical,
    durations,
    executed,
    refixed,
)
from nki_dist.timing.fixed import Fixed
from nki_dist.timing.timeline import Timeline

_SLOW: Final = 0.5  # of its rate, what a transfer in large pieces reaches

_ONE_BY_ONE: Final = (
    "elements are moved one by one, as those of a transposed view: load rows as they lie and turn "
    "them with nisa.nc_transpose, or load them with nisa.dma_transpose"
)


# ---- pieces -------------------------------------------------------------------------------------


def small_transfers(timeline: Timeline, spent: Spent) -> Suspect | None:
    """Transfers that take twice as long as their bytes need."""
    arch = timeline.arch
    found = [
        (core, at, i)
        for core, at, i in executed(timeline)
        if (t := core.transfers.get(i.ordinal)) is not None
        and _ideal_ns(core.costs[i.ordinal].dma_bytes, arch) < _SLOW * sum(ns for _, ns in t.parts)
    ]
    lines = critical(durations(found), spent)
    if not lines:
        return None
    costs = [core.costs[i.ordinal] for core, _, i in found]
    size, pieces = sum(c.dma_bytes for c in costs), sum(c.dma_elements for c in costs)

    def at_full_rate(fixed: Fixed) -> Fixed:
        t = fixed.transfer
        if t is None:
            return fixed
        whole = sum(ns for _, ns in t.parts)
        ratio = min(1.0, _ideal_ns(fixed.cost.dma_bytes, arch) / whole) if whole else 1.0
        parts = tuple((e, ns * ratio) for e, ns in t.parts)
        issue = t.issue_ns * ratio  # of so many fewer transfers
        return replace(fixed, transfer=replace(t, parts=parts, packets=0.0, issue_ns=issue))

    return Suspect(
        "small transfers",
        f"{_moved(len(found), size)} in pieces of {size / pieces:,.0f}, so small that each takes "
        "more than twice as long as its bytes need; "
        + (_ONE_BY_ONE if all(map(_by_elements, found)) else "make contiguous rows longer"),
        lines,
        "AWS's performance guide, #9: perform sufficiently large DMA transfers; its guide to DMA "
        "bandwidth recommends 2 KiB of contiguous data",
        [refixed(lines, at_full_rate)],
        spent.dma,
    )


def _moved(count: int, size: int) -> str:
    if count == 1:
        return f"1 transfer, of {size:,} bytes, is moved"
    return f"{count:,} transfers, of {size / count:,.0f} bytes on average, are moved"


def _ideal_ns(size: int, arch: Arch) -> float:
    """Time of a transfer on all its engines if bytes alone counted."""
    return size / arch.dma_engine_gbps


def _by_elements(found: Executed) -> bool:
    """Whether a transfer's pieces are single elements."""
    core, _, i = found
    reads, writes = core.graph.tensors[i.ordinal]
    widest = max(a.dtype.itemsize for a in (*reads, *writes))
    return core.costs[i.ordinal].dma_bytes <= core.costs[i.ordinal].dma_elements * widest


# ---- descriptors --------------------------------------------------------------------------------


def run_time_descriptors(timeline: Timeline, spent: Spent) -> Suspect | None:
    """Queues on which transfers wait because descriptors are made one after the other."""
    arch = timeline.arch
    found = [
        (core, at, i)
        for core, at, i in executed(timeline)
        if (t := core.transfers.get(i.ordinal)) is not None and t.mode != "none"
    ]
    lines, count = critical(durations(found), spent), len(found)
    if not lines:
        return None
    issue = max(core.transfers[i.ordinal].issue_ns for core, _, i in found)
    lead = max(arch.dma_trigger_ns, arch.dma_semaphore_ns * arch.dma_lead_fraction)

    def static(fixed: Fixed) -> Fixed:
        t = fixed.transfer
        if t is None or t.mode == "none":
            return fixed
        t = replace(t, mode="none", queue="", issue_ns=arch.dma_trigger_ns, lead_ns=lead)
        return replace(fixed, transfer=t)

    return Suspect(
        "one queue for descriptors",
        f"{'1 transfer has' if count == 1 else f'{count:,} transfers have'} descriptors that are "
        f"made when {'it runs' if count == 1 else 'they run'}, {issue:,.0f} ns each, "
        "one after the other on their queue, while engines wait; use dge_mode.none with "
        "addresses that are known when the kernel is compiled, or fewer and larger transfers",
        lines,
        "AWS's guide to descriptor generation: static patterns have no overhead on the device",
        [refixed(lines, static)],
        spent.dma,
    )
