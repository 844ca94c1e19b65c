"""The trace of launches in a row: a track of launches, and what engines do in one of each kind.

A trace as of `perfetto`, on the line of `sequence`: process 0 has a slice
for each launch, the others are the cores of the first of each distinct launch, at its place.
Bounded: of launches the first `MOST_LAUNCHES` are there, and of the cores as many as have
`MOST_EVENTS` events together; the file says in `otherData.left_out` what isn't.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any, Final

from nki_dist.timing.perfetto import trace_events, write_events
from nki_dist.timing.sequence import Launch, SequenceProfile

MOST_LAUNCHES: Final = 100_000
MOST_EVENTS: Final = 200_000


def write_sequence_trace(line: SequenceProfile, platform: str, path: str | PathLike[str]) -> None:
    """Write the trace."""
    launches, left_out = line.launches, []
    first: dict[int, Launch] = {}  # of each distinct launch
    for launch in launches:
        first.setdefault(id(launch.profile), launch)
    shown, left = [], MOST_EVENTS
    for launch in first.values():
        timeline, cores = launch.profile.timeline, 0
        for which in timeline.which:
            events = len(timeline.distinct[which].graph)
            if events > left:
                left_out.append(f"{len(timeline.which) - cores} cores of {launch.name}")
                break
            cores, left = cores + 1, left - events
        shown.append((launch, cores))
    if len(launches) > MOST_LAUNCHES:
        left_out.append(f"launches after the first {MOST_LAUNCHES:,} of {len(launches):,}")
    write_events(_events(launches[:MOST_LAUNCHES], shown), platform, path, left_out)


def _events(launches: list[Launch], shown: list[tuple[Launch, int]]) -> Iterator[dict[str, Any]]:
    """Args: shown: launches with the number of cores that are shown of each."""
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "launches"}}
    yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "launches"}}
    for n, (name, start, us, _) in enumerate(launches):
        args = {"launch": n, "ns": [start * 1000, (start + us) * 1000]}
        yield {"ph": "X", "name": name, "pid": 0, "tid": 0, "ts": start, "dur": us, "args": args}
    process = 1
    for launch, cores in shown:
        yield from _moved(launch, cores, process)
        process += cores


def _moved(launch: Launch, cores: int, process: int) -> Iterator[dict[str, Any]]:
    """The events of some cores of a launch, as processes of their own from a number on."""
    timeline = launch.profile.timeline
    # All that is around a kernel is shown before it, but for its end.
    start_us = launch.start_us + launch.profile.overhead_us - timeline.arch.kernel_end_ns / 1000
    for e in trace_events(timeline, cores):
        e["pid"] += process
        if e["name"] == "process_name":
            e["args"]["name"] = f"{launch.name}: {e['args']['name']}"
        if "ts" in e:
            e["ts"] += start_us
        if "id" in e:
            e["id"] += process << 24  # no two launches share an arrow
        elif "ts" in e:
            e["args"]["ns"] = [ns + start_us * 1000 for ns in e["args"]["ns"]]
        yield e
