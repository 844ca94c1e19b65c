"""Rules about DMA: small pieces, loads that are repeated, descriptors made at run time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from nki_dist.arch import Arch
from nki_dist.program import Instruction
from nki_dist.timing.advice.suspect import (
    Change,
    Spent,
    Suspect,
    critical,
    line_of,
    of_lines,
    refixed,
)
from nki_dist.timing.dma import Transfer
from nki_dist.timing.fixed import Fixed
from nki_dist.timing.replay import Part
from nki_dist.timing.timeline import Timeline

_SLOW: Final = 0.5  # of its rate, what a transfer in large pieces reaches

_ONE_BY_ONE: Final = (
    "elements are moved one by one, as those of a transposed view: load rows as they lie and turn "
    "them with nisa.nc_transpose, or load them with nisa.dma_transpose"
)


# ---- pieces -------------------------------------------------------------------------------------


def small_transfers(timeline: Timeline, spent: Spent) -> Iterator[Suspect]:
    """Transfers that take twice as long as their bytes need."""
    arch = timeline.arch
    durations: dict[str, float] = {}
    count, size, pieces, single = 0, 0, 0, True
    for core in timeline.cores:
        for at, i in enumerate(core.graph.executed):
            t = core.transfers.get(i.ordinal)
            if t is None or at in core.dropped:
                continue
            cost = core.costs[i.ordinal]
            nbytes = cost.dma_bytes
            if _ideal_ns(t, nbytes, arch) < _SLOW * sum(ns for _, ns in t.parts):
                line = line_of(core, i)
                durations[line] = durations.get(line, 0.0) + core.end[at] - core.start[at]
                count, size, pieces = count + 1, size + nbytes, pieces + cost.dma_elements
                reads, writes = core.graph.tensors[i.ordinal]
                widest = max(a.dtype.itemsize for a in (*reads, *writes))
                single = single and nbytes <= cost.dma_elements * widest
    lines = critical(durations, spent, durations)
    if not lines:
        return
    yield Suspect(
        "small transfers",
        f"{_moved(count, size)} in pieces of {size / pieces:,.0f}, so small that each takes more "
        "than twice as long as its bytes need; "
        + (_ONE_BY_ONE if single else "make contiguous rows longer"),
        lines,
        "AWS's performance guide, #9: perform sufficiently large DMA transfers; its guide to DMA "
        "bandwidth recommends 2 KiB of contiguous data",
        [_in_one_piece(lines, arch)],
        spent.dma,
    )


def _moved(count: int, size: int) -> str:
    if count == 1:
        return f"1 transfer, of {size:,} bytes, is moved"
    return f"{count:,} transfers, of {size / count:,.0f} bytes on average, are moved"


def _ideal_ns(t: Transfer, size: int, arch: Arch) -> float:
    """Time on all its engines if bytes alone counted."""
    return size / arch.dma_engine_gbps


def _in_one_piece(lines: list[str], arch: Arch) -> Change:
    def change(_: int, part: Part) -> Part:
        wanted = of_lines(part.graph.program, lines)

        def at_full_rate(i: Instruction, fixed: Fixed) -> Fixed:
            t = fixed.transfer
            if t is None or i.location not in wanted:
                return fixed
            whole = sum(ns for _, ns in t.parts)
            ratio = min(1.0, _ideal_ns(t, fixed.cost.dma_bytes, arch) / whole) if whole else 1.0
            parts = tuple((e, ns * ratio) for e, ns in t.parts)
            issue = t.issue_ns * ratio  # of so many fewer transfers
            moved = replace(t, parts=parts, packets=0.0, issue_ns=issue)
            return replace(fixed, transfer=moved)

        return refixed(part, at_full_rate)

    return change


# ---- descriptors --------------------------------------------------------------------------------


def run_time_descriptors(timeline: Timeline, spent: Spent) -> Iterator[Suspect]:
    """Queues on which transfers wait because descriptors are made one after the other."""
    arch = timeline.arch
    durations: dict[str, float] = {}
    count, issue = 0, 0.0
    for core in timeline.cores:
        for at, i in enumerate(core.graph.executed):
            t = core.transfers.get(i.ordinal)
            if t is None or at in core.dropped or t.mode == "none":
                continue
            line = line_of(core, i)
            durations[line] = durations.get(line, 0.0) + core.end[at] - core.start[at]
            count, issue = count + 1, max(issue, t.issue_ns)
    lines = critical(durations, spent, durations)
    if not lines:
        return
    yield Suspect(
        "one queue for descriptors",
        f"{'1 transfer has' if count == 1 else f'{count:,} transfers have'} descriptors that are "
        f"made when {'it runs' if count == 1 else 'they run'}, {issue:,.0f} ns each, "
        "one after the other on their queue, while engines wait; use dge_mode.none with "
        "addresses that are known when the kernel is compiled, or fewer and larger transfers",
        lines,
        "AWS's guide to descriptor generation: static patterns have no overhead on the device",
        [_static(lines, arch)],
        spent.dma,
    )


def _static(lines: list[str], arch: Arch) -> Change:
    lead = max(arch.dma_trigger_ns, arch.dma_semaphore_ns * arch.dma_lead_fraction)

    def change(_: int, part: Part) -> Part:
        wanted = of_lines(part.graph.program, lines)

        def with_static(i: Instruction, fixed: Fixed) -> Fixed:
            t = fixed.transfer
            if t is None or t.mode == "none" or i.location not in wanted:
                return fixed
            static = replace(t, mode="none", queue="", issue_ns=arch.dma_trigger_ns, lead_ns=lead)
            return replace(fixed, transfer=static)

        return refixed(part, with_static)

    return change
