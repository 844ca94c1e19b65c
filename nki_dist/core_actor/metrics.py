"""What operators of a cluster see of a world's launches: metrics, and Ray's timeline.

Metrics (`ray.util.metrics`; Ray puts `ray_` before their names) have one label, the world's name,
whatever its ranks. A process names the first WORLDS of its worlds, and the others together, so a
program that makes many doesn't make many series. A launch only adds to numbers here. Once a second
at most, and when the world is closed, these are handed to Ray, which exports them every ten.

Each launch is an event of Ray's timeline in the row of the process that launched it, with kernel,
world and ranks. Processes of cores take their orders from one actor call, so there is nothing of
single launches in their rows. Ray keeps the last 1,000 events of a task or driver. It has no public
way to add one: where `CoreWorker.profile_event` (known of Ray 2.60) is missing, there are none.

In a Ray that was started for one program, nobody asks for any of this, and nothing is recorded.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ray
from ray.util.metrics import Counter, Gauge

from nki_dist.core_actor.actor import Answer
from nki_dist.core_actor.own_ray import own_ray
from nki_dist.forks import Shared, once
from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.layout import Layout

WORLDS: Final = 16
OTHERS: Final = "others"
LABEL: Final = "World"
HAND_IN_EVERY: Final = 1.0  # seconds
METRICS_VARIABLE: Final = "RAY_enable_metrics_collection"
EVENTS_VARIABLE: Final = "RAY_task_events_report_interval_ms"
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


class Seen:
    """Of one world: a context around each launch, of which there is one at a time.

    Args:
        world: its name.
        ranks: how many it has.
    """

    def __init__(self, world: str, ranks: int) -> None:
        self._world, self._ranks = world, ranks
        self._lock = threading.Lock()  # of what the timer's thread takes
        self._timer: threading.Timer | None = None
        self._amounts = [0.0] * len(COUNTERS)
        self._counts = False
        self._worker: Any = None  # of Ray, if launches are events
        self._event: Any = None
        self._began = 0.0
        self._texts: dict[str, bytes] = {}
        self._layout: Layout | None = None  # which these are of
        self._given = self._returned = self._held = 0

    def joined(self) -> None:
        """The world's processes are in the session that this process is in now."""
        own = own_ray().here()
        self._counts = not own or _on(METRICS_VARIABLE)
        worker = getattr(getattr(ray, "_private", None), "worker", None)
        core = getattr(getattr(worker, "global_worker", None), "core_worker", None)
        wanted = hasattr(core, "profile_event") and (not own or _on(EVENTS_VARIABLE))
        self._worker = core if wanted else None

    def launch(self, kernel: str) -> Seen:
        """The context of a launch of this kernel."""
        if self._worker is not None:
            text = self._texts.get(kernel)
            if text is None:
                about = {"name": kernel, "world": self._world, "ranks": str(self._ranks)}
                text = self._texts[kernel] = json.dumps(about).encode()
            self._event = self._worker.profile_event(b"launch", extra_data=text)
        return self

    def __enter__(self) -> Seen:
        self._began = time.perf_counter()
        if self._event is not None:
            self._event.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        event, self._event = self._event, None
        if event is not None:
            event.__exit__(*error)

    def done(
        self, layout: Layout, arenas: Mapping[int, ArenaHandle], answers: Sequence[Answer]
    ) -> None:
        """It has come to its end without an error."""
        if not self._counts:
            return
        if layout is not self._layout:
            self._measure(layout, arenas)
        seconds = time.perf_counter() - self._began
        more = (1, seconds, self._given, self._returned, sum([a.sent for a in answers]))
        with self._lock:
            self._amounts = [a + b for a, b in zip(self._amounts, more)]
            if self._timer is None:
                self._timer = threading.Timer(HAND_IN_EVERY, self._hand_in)
                self._timer.daemon = True
                self._timer.start()

    def _measure(self, layout: Layout, arenas: Mapping[int, ArenaHandle]) -> None:
        """Bytes of a launch, which are the same until another kernel or shape comes."""
        self._layout = layout
        of = {s.index: s.nbytes for s in layout.inputs}
        common = sum(of[index] for index in layout.common)
        self._given = (sum(of.values()) - common) * self._ranks + common
        self._returned = sum(end - start for start, end in layout.read_back) * self._ranks
        self._held = sum(arena.stride for arena in arenas.values())

    def over(self) -> None:
        """Its processes and stacks are gone, for good or until the next launch."""
        timer, self._layout, self._held = self._timer, None, 0
        if self._counts:
            self._counts = False
            if timer is not None:
                timer.cancel()
            self._hand_in()

    def _hand_in(self) -> None:
        with self._lock:
            amounts, self._amounts = self._amounts, [0.0] * len(COUNTERS)
            self._timer = None
            if ray.is_initialized():  # else there is nobody
                exported().hand_in(self._world, amounts, self._held)


def _on(variable: str) -> bool:
    """Whether one of Ray's settings, which are all off in a Ray of our own, is on."""
    return os.environ.get(variable, "0").lower() not in ("", "0", "false")
