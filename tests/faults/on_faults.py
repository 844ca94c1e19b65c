"""A program for test_faults: one fault in one world, in a Ray session of its own.

`python -m tests.faults.on_faults FAULT WHEN [NAME=VALUE...]` prints JSON for the test to look at.
FAULT is stop, pause (a stop that ends), kill, raylet or gcs; WHEN is launch or idle. Names:
transport, lnc, per_actor, retries, timeout, rounds, and orphan=1 to have process 1 as parent, as
programs in containers have.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from typing import Any

import numpy as np


def adopted() -> None:
    """Go on as a child of process 1."""
    if os.fork():
        os._exit(0)
    before = os.getppid()
    while before != 1 and os.getppid() == before:
        time.sleep(0.01)


class Injector:
    """Does one kind of harm to the processes under a world."""

    def __init__(self, world: Any, fault: str) -> None:
        import ray._private.worker as private

        node = private._global_node
        self.actor = world.host.actors[-1]
        self.victim = world.host.processes[-1][0]
        if fault in ("raylet", "gcs"):
            name = {"raylet": "raylet", "gcs": "gcs_server"}[fault]
            self.victim = node.all_processes[name][0].process.pid
        self.signal = signal.SIGSTOP if fault in ("stop", "pause") else signal.SIGKILL
        self.at = 0.0

    def __call__(self) -> None:
        self.at = time.monotonic()
        os.kill(self.victim, self.signal)

    def when_running(self, endless: bool) -> None:
        """Harm it in the middle of the launch that begins now.

        Args:
            endless: the launch has no end, so the launcher gets the time to ask where cores are.
        """
        import ray

        while True:
            status = ray.get(self.actor.status.remote())
            if status.state != "done" and status.progress[0] > 500:
                time.sleep(2 * endless)
                self()
                return
            time.sleep(0.02)

    def end(self) -> None:
        os.kill(self.victim, signal.SIGCONT)


def gone(pid: int) -> bool:
    """Whether a process has ended, if need be within seconds."""
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


def main(fault: str, when: str, **options: str) -> None:
    import nki_dist as nki
    import nki_dist.collectives as ncc
    from nki_dist import errors
    from nki_dist.core_actor.supervise import WARN_AFTER
    from tests.launcher import kernels as K

    ranks, lnc = 3, int(options.get("lnc", 1))
    timeout = float(options["timeout"]) if "timeout" in options else None
    group = ncc.ReplicaGroup([list(range(ranks))])
    rng = np.random.default_rng(7)
    start = [rng.standard_normal((6, 40), np.float32) for _ in range(ranks)]
    found: dict[str, Any] = {}

    def run(world: Any, rounds: int) -> list[bytes]:
        """The bytes of all results and of the inputs, which the kernel changes."""
        xs = [x.copy() for x in start]
        count = np.array([[rounds]], np.int32)
        try:
            outs = world.run(K.accumulate, nki.per_rank(xs), count, group)
        except errors.NkiError:
            found["untouched"] = all(map(np.array_equal, xs, start))
            raise
        return [out.tobytes() for out in (*outs, *xs)]

    rounds = 9 if fault in ("raylet", "gcs") and when == "idle" else 2**30
    rounds = int(options.get("rounds", rounds))
    with nki.World(ranks=ranks, lnc=lnc, host="inprocess") as world:
        right = run(world, 9)
        wanted = run(world, rounds) if rounds < 10_000 else None
    with nki.World(
        ranks=ranks,
        lnc=lnc,
        host="ray",
        timeout=timeout,
        transport=options.get("transport"),
        cores_per_actor=int(options.get("per_actor", lnc)),
        retries=int(options.get("retries", 0)),
    ) as world:
        assert run(world, 9) == right
        harm = Injector(world, fault)
        if when == "idle":
            harm()
        else:
            threading.Thread(target=harm.when_running, args=(rounds >= 10_000,)).start()
        if fault == "pause":
            threading.Timer(WARN_AFTER + 8, harm.end).start()
        begun = time.monotonic()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found["same"] = run(world, rounds) == wanted
            except errors.NkiError as error:
                found["error"] = type(error).__name__
                found["text"] = str(error)
                found["core"] = error.core
        found["warnings"] = [f"{type(w.message).__name__}: {w.message}" for w in caught]
        ended = time.monotonic()
        due = begun + timeout if fault == "stop" and timeout else harm.at
        found["seconds"] = round(ended - due, 1)
        found["victim gone"] = fault == "pause" or gone(harm.victim)
        found["victim"] = harm.victim
        found["next"] = run(world, 9) == right
        found["next took"] = round(time.monotonic() - ended, 1)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    given = dict(pair.split("=") for pair in sys.argv[3:])
    if given.pop("orphan", ""):
        adopted()
    main(sys.argv[1], sys.argv[2], **given)
