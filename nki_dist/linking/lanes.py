"""Lanes: which thread carries out which instruction, settled before anything runs.

All instructions of a straight run are put into the order in which they are expected to begin; a
lane carries out its own in that order, and waits where it needs what another lane has yet to do. So
there is no circle of waits, and the bits are those of one thread. Times are estimated; a wrong
estimate costs waiting, nothing else.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from nki_dist.linking.kinds import Kind
from nki_dist.linking.linked import Late, Linked, LinkedLoop, Segment
from nki_dist.linking.needs import Needs, Touch, dependences, states_of
from nki_dist.ops.operation import Operation
from nki_dist.ops.place import Place, Space

CALL: Final = 1.5e-6  # seconds that an operation takes whatever its size
SIGNAL: Final = 15e-6  # from one lane to another
LEAST: Final = 2e-3  # of a straight run of instructions that is worth several lanes
GAIN: Final = 0.85  # of one lane's time, that several may take at most
FIRST: Final = -2  # the group of what the first lane does
_WEIGHTS: Final = {"copy": 0.25, "fill": 0.1, "cast": 0.5, "reduce": 1.2, "convert": 0.9}  # ns each
_UFUNC: Final = 0.4
_HEAVY: Final = 4.5
_FLOPS: Final = 90e9


@dataclass
class Lane:
    """What one thread does of a straight run of instructions.

    Attributes:
        nodes: numbers of its instructions, in order.
        waits: by node, the signals that it waits for first.
        signals: by node, those that it gives afterwards.
    """

    nodes: list[int] = field(default_factory=list)
    waits: dict[int, list[int]] = field(default_factory=dict)
    signals: dict[int, list[int]] = field(default_factory=dict)


@dataclass
class Schedule:
    """Lanes of a straight run of instructions.

    Attributes:
        lane_of: by node.
        signals: how many there are.
    """

    lane_of: list[int]
    lanes: list[Lane] = field(default_factory=list)
    signals: int = 0


def seconds_of(kind: Kind) -> float:
    """About how long a kind takes on one processor."""
    return sum(map(_seconds, kind.operations))


def _seconds(o: Operation) -> float:
    places = [a for a in o.arguments if type(a) is Place]
    size, name = max((a.size for a in places), default=0), o.function.name
    if name == "matmul":
        (m, k), n = places[0].shape, places[-1].shape[1]
        return CALL + 2.0 * m * k * n / _FLOPS
    head = name.split()[0]
    weight = _WEIGHTS.get(head)
    if weight is None:
        weight = _HEAVY if head.startswith("activation.") else _UFUNC
        if o.function.make is None and type(o.function.call).__name__ == "function":
            weight = max(weight, 1.5)
    return CALL + size * weight * 1e-9


class Plan(NamedTuple):
    """For each instruction of a straight run:

    Attributes:
        lanes: which lane has it.
        begins: when it is expected to begin, in seconds.
        needs: those before it that it needs.
    """

    lanes: list[int]
    begins: list[float]
    needs: list[list[int]]


class _Use(NamedTuple):
    """What an instruction does with accumulators: all of its operations use the same ones.

    Attributes:
        low, high: bytes of them, half open.
        anew: it writes all of these before it reads any.
    """

    engine: str
    low: int
    high: int
    anew: bool


def _use(kind: Kind) -> _Use | None:
    for o in kind.operations:
        for n, a in enumerate(o.arguments):
            if type(a) is Place and a.space[0] == "accumulators":
                anew = n in o.function.writes and n not in o.function.reads
                return _Use(str(a.space[1]), *a.span(), anew)
    return None


class Planner:
    """Finds lanes for the straight runs of a linked program.

    Args:
        linked: the program.
        threads: lanes at most.

    Attributes:
        per_lane: kinds of spaces of which each lane has its own.
        needs: what its instructions touch of all others.
    """

    def __init__(self, linked: Linked, threads: int) -> None:
        self._linked, self._threads = linked, threads
        self._watched = frozenset(linked.program.facts.get("watched", ()))
        self._seconds = [seconds_of(kind) for kind in linked.kinds]
        self._ordered = [any(o.function.ordered for o in k.operations) for k in linked.kinds]
        self._uses = list(map(_use, linked.kinds))
        self.per_lane = ("scratch", *(["accumulators"] if self._begun_anew(linked.body) else []))
        self.needs = Needs(linked, per_lane=self.per_lane)
        self._spaces: list[set[Space]] = [{space for space, _ in run.bases} for run in linked.runs]

    def _first_lane(self, straight: Segment) -> list[int]:
        """Instructions that the thread which launches carries out: those that are settled at run
        time, are watched, or do what is seen outside."""
        runs, found = self._linked.runs, []
        for k, (run, i) in enumerate(zip(straight.steps, straight.instructions, strict=True)):
            if type(run) is Late or i.ordinal in self._watched or self._ordered[runs[run].kind]:
                found.append(k)
        return found

    def touched(self, run: Any) -> list[Touch]:
        """What an instruction touches."""
        return self.needs.of_late(run.instruction) if type(run) is Late else self.needs.of(run)

    def spaces(self, run: Any) -> Iterable[Space]:
        """Where the operands of an instruction lie: storages and panels, and more of a late one."""
        if type(run) is Late:
            return {t.space for t in self.needs.of_late(run.instruction)}
        return self._spaces[int(run)]

    def plan(self, straight: Segment) -> Plan | None:
        """Lanes for its instructions; None where one thread is as good."""
        times = [
            5e-6 if type(run) is Late else self._seconds[self._linked.runs[run].kind]
            for run in straight.steps
        ]
        total = sum(times)
        if self._threads < 2 or total < LEAST:
            return None
        nodes = list(map(self.touched, straight.steps))
        needs = dependences(nodes)
        if needs is None:
            return None
        together = self._groups(straight) if "accumulators" in self.per_lane else {}
        together.update(dict.fromkeys(self._first_lane(straight), FIRST))
        lanes, begins = _assigned(times, needs, self._threads, together)
        seconds = max(begin + time for begin, time in zip(begins, times))
        if seconds > GAIN * total:
            return None
        return Plan(lanes, begins, needs)

    # ---- accumulators ---------------------------------------------------------------------------

    def _use(self, run: Any) -> _Use | None:
        return None if type(run) is Late else self._uses[self._linked.runs[run].kind]

    def _begun_anew(self, block: Sequence[Any]) -> bool:
        """Whether accumulators are begun anew in every straight run before they are read there.

        Then each lane may have its own, as long as one lane does all from one beginning to the
        next.
        """
        return all(
            self._begun_anew(item.body) if isinstance(item, LinkedLoop) else self._begun_in(item)
            for item in block
            if isinstance(item, (LinkedLoop, Segment))
        )

    def _begun_in(self, item: Segment) -> bool:
        begun: dict[str, _Use] = {}
        for run in item.steps:
            if type(run) is Late and any(
                what == "accumulators" for what, _ in states_of(run.instruction)
            ):
                return False
            use = self._use(run)
            if use is None:
                continue
            if use.anew:
                begun[use.engine] = use
                continue
            first = begun.get(use.engine)
            if first is None or use.low < first.low or use.high > first.high:
                return False
        return True

    def _groups(self, straight: Segment) -> dict[int, int]:
        """By node, the number of those that use the same beginning of accumulators."""
        found: dict[int, int] = {}
        current: dict[str, int] = {}
        for k, run in enumerate(straight.steps):
            use = self._use(run)
            if use is not None:
                if use.anew:
                    current[use.engine] = k
                found[k] = current[use.engine]
        return found


def _assigned(
    times: Sequence[float],
    needs: Sequence[Sequence[int]],
    threads: int,
    together: Mapping[int, int],
) -> tuple[list[int], list[float]]:
    """The lane of each, and when it begins, if a lane that is free takes what can begin.

    It goes on with what followed from its own; else it takes the first in program order, or what
    another lane has waiting behind other things.
    """
    after: list[list[int]] = [[] for _ in times]
    missing = [len(needed) for needed in needs]
    for k, needed in enumerate(needs):
        for d in needed:
            after[d].append(k)
    lanes, begins, ends = [-1] * len(times), [0.0] * len(times), [0.0] * len(times)
    per_lane: list[list[int]] = [[] for _ in range(threads)]  # what can begin, as heaps
    anyone = [k for k, count in enumerate(missing) if not count]
    bound = {FIRST: 0}  # lanes of those that go together
    idle, now = set(range(threads)), 0.0
    events: list[tuple[float, int, int]] = []

    def taken(heap: list[int], w: int) -> int | None:
        skipped, found = [], None
        while heap and found is None:
            k = heapq.heappop(heap)
            if lanes[k] >= 0:
                continue
            if bound.get(together.get(k, -1), w) == w:
                found = k
            else:
                skipped.append(k)
        for k in skipped:
            heapq.heappush(heap, k)
        return found

    def stolen(w: int) -> int | None:
        others = (k for v in range(threads) if v != w for k in per_lane[v])
        free = [k for k in others if lanes[k] < 0 and times[k] > 2 * SIGNAL and k not in together]
        return max(free, key=times.__getitem__, default=None)

    while True:
        for w in sorted(idle):
            found = taken(per_lane[w], w)
            if found is None:
                found = taken(anyone, w)
            if found is None:
                found = stolen(w)
            if found is None:
                continue
            k = found
            if k in together:
                bound.setdefault(together[k], w)
            late = any(lanes[d] != w and ends[d] > now - SIGNAL for d in needs[k])
            lanes[k], begins[k] = w, now + (SIGNAL if late else 0.0)
            ends[k] = begins[k] + times[k]
            idle.discard(w)
            heapq.heappush(events, (ends[k], k, w))
        if not events:
            return lanes, begins
        now, k, w = heapq.heappop(events)
        idle.add(w)
        for n in after[k]:
            missing[n] -= 1
            if not missing[n]:
                heapq.heappush(per_lane[bound.get(together.get(n, -1), w)], n)


def scheduled(lane_of: Sequence[int], needs: Sequence[Sequence[int]], threads: int) -> Schedule:
    """The lanes, with the fewest signals that keep every need."""
    schedule = Schedule(list(lane_of), [Lane() for _ in range(threads)])
    position = []
    for k, w in enumerate(lane_of):
        position.append(len(schedule.lanes[w].nodes))
        schedule.lanes[w].nodes.append(k)
    # Of each node, how far every lane is known to be when it is done.
    reached: list[list[int]] = []
    last = [[-1] * threads for _ in range(threads)]
    for k, w in enumerate(lane_of):
        now = last[w][:]
        for d in sorted(needs[k], key=lambda d: -position[d]):
            v = lane_of[d]
            if v != w and position[d] > now[v]:
                signal, schedule.signals = schedule.signals, schedule.signals + 1
                schedule.lanes[w].waits.setdefault(k, []).append(signal)
                schedule.lanes[v].signals.setdefault(d, []).append(signal)
                now = [max(pair) for pair in zip(now, reached[d])]
                now[v] = max(now[v], position[d])
        now[w] = position[k]
        reached.append(now)
        last[w] = now
    return schedule
