"""The trace of launches in a row: a track of launches, and what engines do in one of each kind.

A trace of `perfetto`, which `read_trace` reads, on the line of `sequence`: process 0 has a slice for
each launch, the others are cores, with the events of the first of each distinct launch at its
place. Bounded: of launches the first `MOST_LAUNCHES` are there, and of the cores as many as have
`MOST_EVENTS` events together; the file says in `otherData.left_out` what isn't.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any, Final

from nki_dist.timing.perfetto import trace_events, write_events
from nki_dist.timing.sequence import SequenceProfile
from nki_dist.timing.timeline import Timeline

MOST_LAUNCHES: Final = 100_000
MOST_EVENTS: Final = 200_000


def write_sequence_trace(
    line: SequenceProfile, platform: str, path: str | PathLike[str]
) -> list[str]:
    """Write the trace; returns what is left out."""
    first: dict[int, int] = {}  # of each distinct launch, in order
    for n, which in enumerate(line.order.tolist()):
        first.setdefault(which, n)
        if len(first) == len(line.profiles):
            break
    left_out, shown, room = [], [], MOST_EVENTS
    for which, n in first.items():
        p = line.profiles[which]
        cores, room = _that_fit(p.timeline, room)
        shown.append((n, which, cores))
        if cores < p.cores:
            left_out.append(f"engines of launch {n}, {line.names[which]}: {cores} of {p.cores} cores")
    if len(line.order) > MOST_LAUNCHES:
        left_out.append(f"launches: the first {MOST_LAUNCHES:,} of {len(line.order):,}")
    write_events(_events(line, shown), platform, path, left_out)
    return left_out


def _that_fit(timeline: Timeline, room: int) -> tuple[int, int]:
    """How many cores of a launch are shown, and the room that they leave."""
    cores = 0
    for which in timeline.which:
        events = len(timeline.distinct[which].graph)
        if events > room:
            break
        cores, room = cores + 1, room - events
    return cores, room


def _events(line: SequenceProfile, shown: list[tuple[int, int, int]]) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "launches"}}
    yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "launches"}}
    starts, took = line.start_us[:MOST_LAUNCHES], line.took_us[:MOST_LAUNCHES]
    for n, (start, us) in enumerate(zip(starts.tolist(), took.tolist(), strict=True)):
        args = {"launch": n, "ns": [start * 1000, (start + us) * 1000]}
        name = line.names[line.order[n]]
        yield {"ph": "X", "name": name, "pid": 0, "tid": 0, "ts": start, "dur": us, "args": args}
    moved = _Moved()
    for n, which, cores in shown:
        p = line.profiles[which]
        # What is around a kernel is shown before it, but for its end.
        start = line.start_us[n] + p.overhead_us - p.timeline.arch.kernel_end_ns / 1000
        yield from moved.events(p.timeline, cores, float(start) * 1000)


class _Moved:
    """Events of launches at their places; a thread of a core is the same in all of them."""

    def __init__(self) -> None:
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[int, str], int] = {}
        self._arrows = 0

    def events(self, timeline: Timeline, cores: int, start: float) -> Iterator[dict[str, Any]]:
        """The events of some cores of a launch that starts at `start` ns."""
        processes: dict[int, int] = {}
        threads: dict[tuple[int, int], int] = {}
        base = last = self._arrows
        for e in trace_events(timeline, cores):
            pid, name = e["pid"], e["args"]["name"] if e["ph"] == "M" else ""
            if e["name"] == "process_name":
                new = name not in self._processes
                processes[pid] = self._processes.setdefault(name, len(self._processes) + 1)
            elif e["name"] == "thread_name":
                key = (processes[pid], name)
                new = key not in self._threads
                threads[pid, e["tid"]] = self._threads.setdefault(key, len(self._threads))
            else:
                new = True
                e["ts"] += start / 1000
                if "id" in e:
                    e["id"] += base
                    last = max(last, e["id"] + 1)
                else:
                    e["args"]["ns"] = [ns + start for ns in e["args"]["ns"]]
            if new:
                tid = {"tid": threads[pid, e["tid"]]} if "tid" in e else {}
                yield {**e, "pid": processes[pid], **tid}
        self._arrows = last
