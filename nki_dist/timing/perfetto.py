"""Writes a launch's simulated time as a trace for ui.perfetto.dev and chrome://tracing.

One process per core, one thread per engine and DMA queue, one complete event per instruction (and
per activation table load), an arrow per message between cores. Where transfers of a queue overlap,
the queue has as many threads as it takes: "dma 0", "dma 1". What the compiler is taken to leave out
isn't shown. Times are microseconds, as the format wants them, and `args.ns` holds the nanoseconds.

Invariant: events of one thread don't overlap. Follows the Trace Event Format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from typing import Any, Final

from nki_dist.program import Instruction
from nki_dist.program.walk import operands
from nki_dist.timing.timeline import CoreTimeline, Delivery, Timeline

FORMAT: Final = "nki_dist timeline"
VERSION: Final = 1


def write_trace(timeline: Timeline, path: str | PathLike[str]) -> None:
    """Write a timeline as a JSON trace."""
    write_events(trace_events(timeline), timeline.arch.instance, path)


def write_events(
    events: Iterable[dict[str, Any]],
    platform: str,
    path: str | PathLike[str],
    left_out: Sequence[str] = (),
) -> None:
    """Write a JSON trace.

    Args:
        left_out: what isn't in it, for who reads what the file is.
    """
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION, "platform": platform}
    if left_out:
        head["left_out"] = list(left_out)
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ns",\n')
        file.write(f'"otherData": {json.dumps(head)},\n"traceEvents": [\n')
        separator = ""
        for event in events:
            file.write(separator + json.dumps(event))
            separator = ",\n"
        file.write("\n]}\n")


def trace_events(timeline: Timeline, most: int | None = None) -> Iterator[dict[str, Any]]:
    """The events of a trace, names first.

    Args:
        most: how many cores are shown, and no messages if these aren't all.
    """
    few = most is not None and most < len(timeline.which)
    # Of few cores nothing is replayed again.
    shown = [timeline.core(n) for n in range(most or 0)] if few else timeline.cores
    threads = [Threads(core) for core in shown]
    for number, core in enumerate(shown):
        yield from _names(number, core, threads[number])
    for number, core in enumerate(shown):
        yield from _work(number, core, threads[number])
    for n, delivery in enumerate(() if few else timeline.deliveries):
        yield from _arrow(n, delivery, timeline, threads)


class Threads:
    """Which thread of a trace shows an instruction.

    Viewers nest events of a thread that overlap, so transfers of one queue that do get a lane each:
    the first that is free.

    Attributes:
        names: by number.
    """

    def __init__(self, core: CoreTimeline) -> None:
        self._queue = core.queue
        self._lane: dict[int, int] = {}
        ends: list[list[float]] = [[] for _ in core.queues]
        moves = (at for at, i in enumerate(core.graph.executed) if i.ordinal in core.transfers)
        shown = [at for at in moves if at not in core.dropped]
        for at in sorted(shown, key=lambda at: (core.start[at], core.end[at], at)):
            lanes = ends[core.queue[at]]
            start = core.start[at]
            lane = next((n for n, end in enumerate(lanes) if end <= start), len(lanes))
            lanes[lane : lane + 1] = [core.end[at]]
            self._lane[at] = lane
        self.names: list[str] = []
        self._first: list[int] = []  # thread of each queue
        for queue, lanes in zip(core.queues, ends, strict=True):
            self._first.append(len(self.names))
            several = len(lanes) > 1
            self.names += [f"{queue} {n}" for n in range(len(lanes))] if several else [queue]

    def of(self, at: int) -> int:
        """The thread of the instruction at a position."""
        return self._first[self._queue[at]] + self._lane.get(at, 0)


def _names(number: int, core: CoreTimeline, threads: Threads) -> Iterator[dict[str, Any]]:
    args = {"name": f"rank {core.seat.rank} core {core.seat.core}"}
    yield {"ph": "M", "name": "process_name", "pid": number, "args": args}
    for tid, queue in enumerate(threads.names):
        args = {"name": queue}
        yield {"ph": "M", "name": "thread_name", "pid": number, "args": args, "tid": tid}


def _work(number: int, core: CoreTimeline, threads: Threads) -> Iterator[dict[str, Any]]:
    shown: dict[int, dict[str, Any]] = {}
    for at, i in enumerate(core.graph.executed):
        if at in core.dropped:
            continue
        tid = threads.of(at)
        load = core.table_loads.get(at)
        if load is not None:
            what: dict[str, Any] = {"function": load.function, "ns": [load.start, load.end]}
            yield _complete("ACT_TABLE_LOAD", number, tid, load.start, load.end, what)
        if i.ordinal not in shown:
            shown[i.ordinal] = _describe(core, i)
        args = {
            **shown[i.ordinal],
            "position": at,
            "waited_for": core.reason[at],
            "ns": [core.start[at], core.end[at], core.done[at]],
        }
        yield _complete(i.opcode, number, tid, core.start[at], core.end[at], args)


def _complete(
    name: str, pid: int, tid: int, start: float, end: float, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": args,
    }


def _describe(core: CoreTimeline, i: Instruction) -> dict[str, Any]:
    tensors = {}
    for name, a in operands(i.args):
        shape = "x".join(map(str, a.shape))
        tensors[name] = f"{a.storage.title} {shape} {a.dtype}"
    return {
        "line": core.graph.program.where(i.location),
        "ordinal": i.ordinal,
        "tensors": tensors,
        "assumed_cost": not core.costs[i.ordinal].known,
    }


def _arrow(
    n: int, delivery: Delivery, timeline: Timeline, threads: list[Threads]
) -> Iterator[dict[str, Any]]:
    ends = (("s", delivery.source, delivery.sent), ("f", delivery.target, delivery.arrived))
    for phase, (number, at), time in ends:
        core = timeline.cores[number]
        # An arrow ends inside the box of its instruction, or viewers drop it.
        time = min(max(time, core.start[at]), core.end[at])
        event = {
            "ph": phase,
            "id": n,
            "name": delivery.channel,
            "cat": "message",
            "pid": number,
            "tid": threads[number].of(at),
            "ts": time / 1000,
        }
        yield event if phase == "s" else {**event, "bp": "e"}
