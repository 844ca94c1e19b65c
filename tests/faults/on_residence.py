"""A program for test_residence: one fault under a world that has tensors in HBM.

`python -m tests.faults.on_residence FAULT WHEN [NAME=VALUE...]` prints JSON for the test.
FAULT is kill (a process), raylet, gcs, node, or agent: the process on another node that has its
tensors. WHEN is idle, placed (a launch knows where its tensors are, and hasn't begun), launch or
row. Names: retries, lnc.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import ray

import nki_dist as nki
from nki_dist import errors
from nki_dist.core_actor.ray_host import RayHost
from tests.faults.supervised import command, parent, pids
from tests.launcher import resident_kernels as R
from tests.launcher.resident_kernels import A

DEEP = np.ones((128, 2048), np.float32)
STORE = 400 << 20


class Harm:
    """One fault."""

    def __init__(self, world: nki.World, fault: str, cluster: Any) -> None:
        self.world, self.fault, self.cluster = world, fault, cluster
        self.at = 0.0

    def __call__(self) -> None:
        import ray._private.worker as private

        self.at = time.monotonic()
        if self.fault == "node":
            made, node = self.cluster
            raylet = node.all_processes["raylet"][0].process.pid
            gone = [pid for pid in pids() if parent(pid) == raylet]
            made.remove_node(node, allow_graceful=False)
            while any(map(command, gone)) or alive(node.node_id):  # they end one by one
                time.sleep(0.05)
            return
        if self.fault == "kill":
            victim = self.world.host.processes[-1][0]
        elif self.fault == "agent":
            victim = agent()
        else:
            name = {"raylet": "raylet", "gcs": "gcs_server"}[self.fault]
            victim = private._global_node.all_processes[name][0].process.pid
        os.kill(victim, signal.SIGKILL)


def alive(node: str) -> bool:
    return any(n["Alive"] for n in ray.nodes() if n["NodeID"] == node)


def agent() -> int:
    """The process that has the tensors of ranks on another node."""
    from ray.util.state import list_actors

    (found,) = [
        a
        for a in list_actors(ray.get_runtime_context().gcs_address, detail=True)
        if a.class_name == "NodeRegions" and a.state == "ALIVE"
    ]
    return int(found.pid)


class Tensors:
    """Those of a world, and what they hold, rank by rank, while nothing is lost."""

    def __init__(self, world: nki.World) -> None:
        self.world, ranks = world, world.ranks
        own = [A + rank for rank in range(ranks)]
        self.made = 0
        self.kept = world.put(nki.per_rank(own), name="kept", restore=True)
        self.again = world.put(A, name="again", restore=self.make)
        self.plain = world.put(A, name="plain")
        self.written = world.put(A * 0, name="written", restore=True)
        world.run(R.add_into, self.kept, self.written)
        self.result = world.run(R.added, self.kept, self.plain)
        self.wanted = {
            "kept": own,
            "again": [A] * ranks,
            "plain": [A] * ranks,
            "written": own,
            "result": [a + A for a in own],
        }

    def make(self) -> np.ndarray:
        self.made += 1
        return A

    def state(self) -> dict[str, Any]:
        """Of each whether it's right, or the error's class."""
        return {name: self.of(name) for name in self.wanted}

    def of(self, name: str) -> Any:
        def right() -> bool:
            return bool(all(map(np.array_equal, getattr(self, name).numpy(), self.wanted[name])))

        value, error = attempted(right)
        return value if error is None else (type(error).__name__, name in str(error))


def attempted(act: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return act(), None
    except errors.NkiError as error:
        return None, error


def main(fault: str, when: str, **options: str) -> None:
    far = fault in ("node", "agent")
    cluster: Any = None
    if far:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 2, "object_store_memory": STORE}
        made = Cluster(initialize_head=True, head_node_args=head)
        cluster = made, made.add_node(num_cpus=2, object_store_memory=STORE)
        made.wait_for_nodes()
    lnc = int(options.get("lnc", 1))
    where = {"platform": "trn1", "ranks": 34} if far else {"ranks": 2, "cores_per_actor": 1}
    address = cluster[0].address if far else None
    retries = int(options.get("retries", 0))
    found: dict[str, Any] = {}
    with (
        warnings.catch_warnings(),
        nki.World(lnc=lnc, host="ray", retries=retries, address=address, **where) as world,
    ):
        warnings.simplefilter("ignore")
        tensors = Tensors(world)
        deep = world.put(DEEP, restore=True)
        for _ in range(2):
            world.run(R.slow, deep).numpy()
        assert set(tensors.state().values()) == {True}, tensors.state()
        harm = Harm(world, fault, cluster)
        launch(world, tensors, deep, harm, when, found)
        found["seconds"] = round(time.monotonic() - harm.at, 1)
        found["then"] = tensors.state()
        found["made"] = tensors.made
        for name in ("plain", "written", "result"):
            getattr(tensors, name).write_from_numpy(nki.per_rank(tensors.wanted[name]))
        found["anew"] = set(tensors.state().values()) == {True}
        new = world.run(R.added, tensors.kept, world.put(A)).numpy()
        found["next"] = all(map(np.array_equal, new, tensors.wanted["result"]))
    print(json.dumps(found), flush=True)
    if far:
        ray.shutdown()
        cluster[0].shutdown()


def launch(
    world: nki.World, t: Tensors, deep: Any, harm: Harm, when: str, found: dict[str, Any]
) -> None:
    """What is under way while the harm is done."""
    if when in ("idle", "placed"):
        if when == "idle":
            harm()
        else:
            before_a_launch(harm)
        got, error = attempted(lambda: world.run(R.added, t.kept, t.again).numpy())
        sums = [a + A for a in t.wanted["kept"]]
        found["launch"] = all(map(np.array_equal, got, sums)) if error is None else told(error)
        return
    many = [world.run(R.added, t.kept, t.again) for _ in range(8)]
    many += [world.run(R.slow, deep) for _ in range(6)]
    if when == "launch":
        world.run(R.add_into, t.kept, t.plain)
        t.wanted["plain"] = [a + A for a in t.wanted["kept"]]
    many += [world.run(R.added, t.kept, t.again) for _ in range(20)]
    later = threading.Timer(0.1, harm)
    later.start()
    _, error = attempted(world.wait)
    later.join()
    found["launch"] = True if error is None else told(error)
    world.wait()
    right: list[Any] = []
    for n, tensor in enumerate(many):
        value, lost = attempted(tensor.numpy)
        sums = [a + A for a in t.wanted["kept"]]
        if lost is not None:
            right.append(type(lost).__name__)
        elif 8 <= n < 14:
            right.append(bool(abs(value[0][5, 7] - SLOWLY) < 1e-3))
        else:
            right.append(all(map(np.array_equal, value, sums)))
    found["values"] = sorted({str(r) for r in right})


def before_a_launch(harm: Harm) -> None:
    """Do it when the next launch is handed to the host."""
    launch = RayHost.launch

    def harmed(host: RayHost, given: Any) -> Any:
        RayHost.launch = launch  # type: ignore[method-assign]
        harm()
        time.sleep(1.5)  # then the host notices when it looks
        return launch(host, given)

    RayHost.launch = harmed  # type: ignore[method-assign]


def told(error: BaseException) -> list[str]:
    return [type(error).__name__, str(error)]


SLOWLY = np.float32(1.0)
for _ in range(400):
    SLOWLY = np.tanh(SLOWLY)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], **dict(word.split("=") for word in sys.argv[3:]))
