"""What operators of a cluster see of a world's launches: its metrics.

They are `ray.util.metrics` (Ray puts `ray_` before their names) with one label, the world's name,
whatever its ranks. A process names the first WORLDS of its worlds, and the others together, so a
program that makes many doesn't make many series. A launch only adds to numbers; a thread of the
world, from its first launch to its end, hands them to Ray, which exports them every ten seconds. A
gauge that isn't set again for a while is gone, so all are.

In a Ray that was started for one program, nobody asks for them, and nothing is recorded.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

import ray
from ray.util.metrics import Counter, Gauge

from nki_dist.core_actor.local_ray import local_ray
from nki_dist.core_actor.orders import Answer
from nki_dist.forks import Shared, once
from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.layout import Layout

WORLDS: Final = 16
OTHERS: Final = "others"
LABEL: Final = "World"
HAND_IN_EVERY: Final = 2.0  # seconds
VARIABLE: Final = "RAY_enable_metrics_collection"
COUNTERS: Final = {
    "nki_dist_launches_total": "Launches that ended without an error",
    "nki_dist_launch_seconds_total": "Seconds that these took",
    "nki_dist_input_bytes_total": "Bytes of the tensors that they were given",
    "nki_dist_output_bytes_total": "Bytes of the tensors that they gave back",
    "nki_dist_messages_total": "Messages between processes in them",
}
HBM: Final = "nki_dist_hbm_bytes"


class Exported(Shared):
    """The metrics of this process, which Ray must be given once; for any thread."""

    def __init__(self) -> None:
        self._counters = [Counter(name, text, (LABEL,)) for name, text in COUNTERS.items()]
        self._hbm = Gauge(HBM, "Bytes of the HBM stacks of all ranks", (LABEL,))
        self._labels: dict[str, str] = {}
        self._held: dict[str, int] = {}
        super().__init__()

    def hand_in(self, world: str, amounts: Sequence[float], hbm: int) -> None:
        """What has come to the counters of a world since, and what its stacks take now."""
        with self._lock:
            label = self._labels.setdefault(world, world if len(self._labels) < WORLDS else OTHERS)
            tags = {LABEL: label}
            for counter, amount in zip(self._counters, amounts):
                if amount > 0:
                    counter.inc(amount, tags)
            self._held[world] = hbm
            of_label = [n for w, n in self._held.items() if self._labels[w] == label]
            self._hbm.set(sum(of_label), tags)


@once
def exported() -> Exported:
    """Those of this process."""
    return Exported()


class LaunchMetrics:
    """Of one world.

    Args:
        world: its name.
        ranks: how many it has.
    """

    def __init__(self, world: str, ranks: int) -> None:
        self._world, self._ranks = world, ranks
        self._lock = threading.Lock()  # of what the thread takes
        self._amounts = [0.0] * len(COUNTERS)
        self._ends: threading.Event | None = None  # of the thread, while there is one
        self._counts = False
        self._layout: Layout | None = None  # which these are of
        self._given = self._returned = self._held = 0

    def begin(self) -> None:
        """The world's processes are in the session that this process is in now."""
        switch = os.environ.get(VARIABLE, "").lower()  # of the user, for a Ray of our own
        self._counts = not local_ray().here() or switch in ("1", "true")

    def add(
        self,
        began: float,
        layout: Layout,
        arenas: Mapping[int, ArenaHandle],
        answers: Sequence[Answer],
    ) -> None:
        """A launch has come to its end without an error; `began` by `time.perf_counter`."""
        if not self._counts:
            return
        if layout is not self._layout:
            self._measure(layout, arenas)
        seconds = time.perf_counter() - began
        sent = sum([answer.sent for answer in answers])
        new = 1, seconds, self._given, self._returned, sent
        with self._lock:
            self._amounts = [amount + more for amount, more in zip(self._amounts, new)]
        if self._ends is None:
            self._ends = threading.Event()
            name = f"nki-metrics-{self._world}"
            threading.Thread(target=self._run, args=(self._ends,), name=name, daemon=True).start()

    def _measure(self, layout: Layout, arenas: Mapping[int, ArenaHandle]) -> None:
        """Bytes of a launch, which are the same until another kernel or shape comes."""
        self._layout = layout
        of = {s.index: s.nbytes for s in layout.inputs}
        common = sum(of[index] for index in layout.common)
        self._given = (sum(of.values()) - common) * self._ranks + common
        self._returned = sum(end - start for start, end in layout.read_back) * self._ranks
        self._held = sum(arena.stride for arena in arenas.values())

    def end(self) -> None:
        """Its processes and stacks are gone, for good or until the next launch."""
        ends, self._ends = self._ends, None
        self._layout, self._held = None, 0
        if ends is not None:
            ends.set()
            self._hand_in()

    def _run(self, ends: threading.Event) -> None:
        while not ends.wait(HAND_IN_EVERY):
            self._hand_in()

    def _hand_in(self) -> None:
        with self._lock:
            amounts, self._amounts = self._amounts, [0.0] * len(COUNTERS)
            if ray.is_initialized():  # else there is nobody
                exported().hand_in(self._world, amounts, self._held)
