"""Reading traces back: what keeps the rules of `timing.perfetto`, and nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from typing import Any, Final

from nki_dist.timing.perfetto import FORMAT, VERSION

_FIELDS: Final[dict[str, dict[str, type | tuple[type, ...]]]] = {
    "M": {"name": str, "pid": int, "args": dict},
    "X": {"name": str, "pid": int, "tid": int, "ts": (int, float), "dur": (int, float)},
    "s": {"name": str, "id": int, "pid": int, "tid": int, "ts": (int, float)},
    "f": {"name": str, "id": int, "pid": int, "tid": int, "ts": (int, float), "bp": str},
}


@dataclass(frozen=True)
class Trace:
    """A trace that was read: `events` by phase ("M", "X", "s", "f"), and what the file is."""

    platform: str
    events: dict[str, list[dict[str, Any]]]

    def threads(self) -> dict[tuple[int, int], str]:
        """Names of engines and queues by (process, thread)."""
        return {
            (e["pid"], e["tid"]): e["args"]["name"]
            for e in self.events["M"]
            if e["name"] == "thread_name"
        }


def read_trace(path: str | PathLike[str]) -> Trace:
    """Read and check a trace.

    Raises:
        ValueError: it isn't one that `write_trace` can have written.
    """
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    other = data.get("otherData") if isinstance(data, dict) else None
    if not isinstance(other, dict) or other.get("format") != FORMAT:
        raise ValueError(f"trace {path} wasn't written by write_trace")
    if other.get("version") != VERSION:
        raise ValueError(f"trace {path} has version {other.get('version')}; supported: {VERSION}")
    events: dict[str, list[dict[str, Any]]] = {phase: [] for phase in _FIELDS}
    for n, event in enumerate(data.get("traceEvents", ())):
        _check(event, n)
        events[event["ph"]].append(event)
    trace = Trace(str(other.get("platform")), events)
    _check_whole(trace)
    return trace


def _check(event: Any, n: int) -> None:
    fields = _FIELDS.get(str(event.get("ph"))) if isinstance(event, dict) else None
    if fields is None:
        raise ValueError(f"trace event {n} has no known phase: {event!r}")
    for name, kind in fields.items():
        if not isinstance(event.get(name), kind):
            raise ValueError(f"trace event {n}: {name}={event.get(name)!r}")
    if event["ph"] == "X" and event["dur"] < 0:
        raise ValueError(f"trace event {n} lasts {event['dur']} us")


def _check_whole(trace: Trace) -> None:
    """Threads are named, arrows have two ends, and a thread does one thing at a time."""
    threads = trace.threads()
    ends: dict[tuple[int, int], float] = {}
    for e in sorted(trace.events["X"], key=lambda e: e["args"]["ns"]):
        key = (e["pid"], e["tid"])
        if key not in threads:
            raise ValueError(f"trace event {e['name']} on thread {key}, which has no name")
        if e["args"]["ns"][0] < ends.get(key, 0.0):
            raise ValueError(f"two events at once on {threads[key]} of process {key[0]}")
        ends[key] = e["args"]["ns"][1]
    if [e["id"] for e in trace.events["s"]] != [e["id"] for e in trace.events["f"]]:
        raise ValueError("the trace has arrows with one end only")
