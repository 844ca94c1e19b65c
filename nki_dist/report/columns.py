"""The events of a timeline as columns of numbers, for a page to draw.

An event is an instruction that takes time, or a load of activation tables. Events are grouped by
row (an engine or a DMA queue of a core), and those of a row are in the order of their starts, so
that a page finds what is visible by bisection. Beyond `MOST` events, short ones of a row that begin
in the same slice of time become one, and the page says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nki_dist.program import Instruction
from nki_dist.program.walk import operands
from nki_dist.timing.critical import Piece
from nki_dist.timing.perfetto import Threads
from nki_dist.timing.timeline import CoreTimeline, Timeline

MOST: Final = 400_000
REASONS: Final = ("start", "queue", "data", "reuse", "issue", "memory", "resource")
TABLES: Final = "ACT_TABLE_LOAD"
MERGED: Final = 0xFFFFFFFF  # in place of a kind: several instructions
_TYPES: Final = {"start": np.float64, "took": np.float32, "kind": np.uint32, "cause": np.int32} | {
    "merged": np.uint32, "reason": np.uint8, "critical": np.uint8}  # fmt: skip


@dataclass
class Row:
    """An engine or queue of a core; its events are those from `first` up to `last`."""

    core: int
    name: str
    engine: str
    first: int = 0
    last: int = 0


@dataclass
class Columns:
    """Events of a launch.

    Attributes:
        rows: engines and queues, core after core.
        kinds: what instructions are: opcode, engine, line (a number in `lines`), tensors, known.
        lines: `file:line`.
        start, took: ns.
        kind: numbers in `kinds`, or MERGED.
        cause: the event that fixed the start, or -1.
        reason: numbers in REASONS.
        critical: 1 for what is on the critical path.
        merged: for events of kind MERGED how many they are, else 1.
        position: of the instruction among those that its core executed; -1 for other events.
    """

    rows: list[Row]
    kinds: list[tuple[Any, ...]]
    lines: list[str]
    start: np.ndarray
    took: np.ndarray
    kind: np.ndarray
    cause: np.ndarray
    reason: np.ndarray
    critical: np.ndarray
    merged: np.ndarray
    position: np.ndarray

    def __len__(self) -> int:
        return len(self.start)

    def arrays(self) -> dict[str, np.ndarray]:
        """What a page reads, by name; the widest elements first, so that all are aligned."""
        return {name: getattr(self, name).astype(kind) for name, kind in _TYPES.items()}


class _Kinds:
    """Numbers for instructions and lines; what reads alike has one, whatever core runs it."""

    def __init__(self) -> None:
        self._cache: dict[tuple[int, int], int] = {}
        self.kinds: dict[tuple[Any, ...], int] = {}
        self.lines: dict[str, int] = {}

    def of(self, core: CoreTimeline, i: Instruction, tables: str = "") -> int:
        key = (id(core.graph.program), -1 - i.ordinal if tables else i.ordinal)
        number = self._cache.get(key)
        if number is None:
            line = self.lines.setdefault(core.graph.line(i.location), len(self.lines))
            what: tuple[Any, ...] = tables, 1
            if not tables:
                what = _tensors(i), int(core.costs[i.ordinal].known)
            kind = TABLES if tables else i.opcode, i.engine, line, *what
            number = self._cache[key] = self.kinds.setdefault(kind, len(self.kinds))
        return number


def _tensors(i: Instruction) -> str:
    found = []
    for name, a in operands(i.args):
        shape = "×".join(map(str, a.shape))
        found.append(f"{name} {a.storage.title} {shape} {a.dtype} {a.region.value}")
    return "\n".join(found)


def columns(timeline: Timeline, pieces: Sequence[Piece], most: int = MOST) -> Columns:
    """All events of a timeline.

    Args:
        pieces: of its critical path.
        most: how many events there may be before short ones are merged.
    """
    kinds, rows = _Kinds(), list[Row]()
    # Row, start, end, kind, reason, (core, position; of a load of tables -1 - position), cause.
    found: list[tuple[int, float, float, int, int, tuple[int, int], Any]] = []
    for number, core in enumerate(timeline.cores):
        threads = Threads(core)
        for at, i in enumerate(core.graph.executed):
            if at in core.dropped:
                continue
            row = len(rows) + threads.of(at)
            load = core.table_loads.get(at)
            if load is not None:
                kind = kinds.of(core, i, load.function)
                found.append((row, load.start, load.end, kind, 0, (number, -1 - at), None))
            what = kinds.of(core, i), REASONS.index(core.reason[at]), (number, at), core.cause[at]
            found.append((row, core.start[at], core.end[at], *what))
        # What a queue is called begins with its engine.
        rows += [Row(number, n, n.split()[0]) for n in threads.names]
    of, starts, ends, kind_of, reasons, where, causes = zip(*found) if found else [()] * 7
    row_of = np.array(of, np.int64)
    start, end = np.array(starts, np.float64), np.array(ends, np.float64)
    order = np.lexsort((end, start, row_of))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    by_position = {key: int(n) for key, n in zip(where, place, strict=True)}
    critical = {(p.core, p.position) for p in pieces}
    events = Columns(
        rows,
        list(kinds.kinds),
        list(kinds.lines),
        start[order],
        (end - start)[order],
        np.array(kind_of, np.uint32)[order],
        np.array([-1 if c is None else by_position.get(c, -1) for c in causes], np.int32)[order],
        np.array(reasons, np.uint8)[order],
        np.array([key in critical for key in where], np.uint8)[order],
        np.ones(len(order), np.uint32),
        np.array([max(at, -1) for _, at in where], np.int32)[order],
    )
    row_of = row_of[order]
    if len(events) > most:
        row_of = _merge(events, row_of, timeline.total_ns, most)
    edges = np.searchsorted(row_of, np.arange(len(events.rows) + 1))
    for n, each in enumerate(events.rows):
        each.first, each.last = int(edges[n]), int(edges[n + 1])
    return events


def _merge(events: Columns, row: np.ndarray, total: float, most: int) -> np.ndarray:
    """Make one event of those of a row that begin in the same slice and are shorter than it."""
    slices = max(1, most // (2 * max(1, len(events.rows))))
    width = total / slices
    alone = (events.took >= width) | (events.critical > 0)
    slot = row * (slices + 1) + np.minimum(events.start / width, slices).astype(np.int64)
    # What stays alone gets a slot of its own, after all slices.
    slot[alone] = (slices + 1) * len(events.rows) + np.flatnonzero(alone)
    _, first, back, count = np.unique(
        slot, return_index=True, return_inverse=True, return_counts=True
    )
    end = np.zeros(len(first))
    np.maximum.at(end, back, events.start + events.took)
    keep = np.lexsort((events.start[first], row[first]))
    one, many = first[keep], count[keep] > 1
    place = np.empty(len(keep), np.int64)
    place[keep] = np.arange(len(keep))
    cause = events.cause[one]
    caused = (cause >= 0) & ~many
    events.cause = np.where(caused, place[back[np.where(caused, cause, 0)]], -1).astype(np.int32)
    events.took = end[keep] - events.start[one]
    events.start, events.merged = events.start[one], count[keep].astype(np.uint32)
    events.kind = np.where(many, MERGED, events.kind[one]).astype(np.uint32)
    events.reason, events.critical = events.reason[one], events.critical[one]
    events.position = np.where(many, -1, events.position[one]).astype(np.int32)
    return row[one]
