"""What charts of a page show: busy engines over time, the roofline, ranks and their collectives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from nki_dist.report.columns import Columns
from nki_dist.timing.timeline import CoreTimeline, Timeline

SLICES: Final = 240  # of time, in the chart of busy engines
ENGINES: Final = ("tensor", "vector", "scalar", "gpsimd", "sync", "dma", "cc")


def busy(events: Columns, timeline: Timeline) -> dict[str, Any]:
    """For each engine the share of every slice of time in which it worked, over all cores.

    "dma" is the time in which at least one transfer moved data.
    """
    total = timeline.total_ns
    edges = np.linspace(0.0, total, SLICES + 1)
    spans: dict[tuple[str, int], list[np.ndarray]] = {}
    for row in events.rows:
        at = slice(row.first, row.last)
        pair = np.stack([events.start[at], events.start[at] + events.took[at]], axis=1)
        spans.setdefault((row.engine, row.core), []).append(pair)
    shares: dict[str, np.ndarray] = {}
    for (engine, _), pairs in spans.items():
        taken = np.diff(covered(np.concatenate(pairs), edges))
        shares[engine] = shares.get(engine, np.zeros(SLICES)) + taken
    scale = max(total / SLICES * len(timeline.cores), 1e-30)
    order = sorted(shares, key=lambda e: ENGINES.index(e) if e in ENGINES else len(ENGINES))
    return {
        "us": [round(t, 6) for t in ((edges[:-1] + edges[1:]) / 2000).tolist()],
        "share": {e: [round(x, 4) for x in (shares[e] / scale).tolist()] for e in order},
    }


def covered(spans: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How much of the time up to each edge the union of the spans covers."""
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    end = np.maximum.accumulate(spans[:, 1])
    start = np.maximum(spans[:, 0], np.concatenate([[0.0], end[:-1]]))
    length = np.maximum(end - start, 0.0)
    before = np.concatenate([[0.0], np.cumsum(length)])
    n = np.searchsorted(start, edges, side="right")
    begun = np.maximum(n - 1, 0)
    open_part = np.where(n > 0, np.clip(edges - start[begun], 0.0, length[begun]), 0.0)
    taken: np.ndarray = before[begun] + open_part
    return taken


def roofline(profile: Mapping[str, Any], timeline: Timeline) -> dict[str, Any]:
    """The roofs of the cores used, and where the launch is under them.

    Args:
        profile: `Profile.to_dict()`.
    """
    arch, cores = timeline.arch, len(timeline.cores)
    stacks = len({c.seat.stack for c in timeline.cores})
    moved = profile["hbm_read"] + profile["hbm_written"]
    tensor = profile["flops"] > 0
    flops = profile["flops"] if tensor else profile["all_flops"]
    seconds = profile["total_us"] / 1e6
    return {
        "gbps": arch.hbm_stack_gbps * stacks,
        "stacks": stacks,
        "roofs": {d: t * cores for d, t in sorted(arch.peak_tflops.items())},
        "tensor": tensor,
        "intensity": flops / moved if moved else 0.0,
        "tflops": flops / seconds / 1e12 if seconds else 0.0,
        "reached_gbps": moved / seconds / 1e9 if seconds else 0.0,
    }


def ranks(timeline: Timeline) -> dict[str, Any]:
    """By rank, or by core if there is one rank: its last result, and its waits for other cores."""
    several = len({c.seat.rank for c in timeline.cores}) > 1
    found: dict[int, dict[str, Any]] = {}
    for core in timeline.cores:
        number = core.seat.rank if several else core.seat.core
        entry = found.setdefault(number, {"number": number, "end_us": 0.0, "waits_us": 0.0})
        entry["end_us"] = max(entry["end_us"], max(core.done, default=0.0) / 1000)
        entry["waits_us"] = max(entry["waits_us"], _waits(core) / 1000)
    return {
        "what": "rank" if several else "core",
        "bars": [found[number] for number in sorted(found)],
    }


def _waits(core: CoreTimeline) -> float:
    """Time in which instructions were over but for another core."""
    return sum(core.end[at] - core.busy_end.get(at, core.end[at]) for at in core.held)


def collectives(timeline: Timeline) -> list[dict[str, Any]]:
    """Collectives by line: how many, how long, and how far apart their ranks came; longest first.

    `apart_us` is the longest time that a core waited for the last.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for core in timeline.cores:
        for at, i in enumerate(core.graph.executed):
            if i.engine != "cc":
                continue
            line = core.graph.line(i.location)
            entry = found.setdefault(
                (i.opcode, line),
                {"opcode": i.opcode, "line": line, "count": 0, "longest_us": 0.0, "apart_us": 0.0},
            )
            entry["count"] += 1
            took = (core.end[at] - core.start[at]) / 1000
            entry["longest_us"] = max(entry["longest_us"], took)
            last = core.held.get(at)
            if last is not None:
                late = timeline.cores[last[0]].start[last[1]] - core.start[at]
                entry["apart_us"] = max(entry["apart_us"], late / 1000)
    return sorted(found.values(), key=lambda e: (-e["longest_us"], e["line"]))
