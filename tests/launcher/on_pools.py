"""A program for test_reserving: a cluster whose head has no processors, and two pools of workers.

`python -m tests.launcher.on_pools reserves|least|group|sessions|memory` prints JSON for the test.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.runtime.settings import OPTIONS_VARIABLE, START_VARIABLE
from tests.hosts.kernels import add_halves
from tests.launcher import kernels as K

STORE = 200 << 20
ONE = {"num_cpus": 1, "label_selector": {"pool": "sim"}}
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def right(world: nki.World, x: np.ndarray = X) -> bool:
    return all(np.array_equal(out, x + 1) for out in world.run(K.add_weights, x, np.ones_like(x)))


def nodes(world: nki.World) -> set[str]:
    return {node for _, node in world.host.processes}


def free() -> float:
    """Processors that aren't reserved; each node reports twice a second."""
    time.sleep(1.5)
    return ray.available_resources().get("CPU", 0.0)


def error_of(run: Any) -> str:
    try:
        run()
    except errors.NkiError as error:
        return f"{type(error).__name__} {error.code}: {error}"
    return "none"


def reserves(cluster: Cluster) -> dict[str, Any]:
    whole = free()
    found: dict[str, Any] = {}
    with nki.World(ranks=4, lnc=1, actor_options=ONE) as one:
        found["right"] = right(one)
        found["taken"] = whole - free()
        os.environ[START_VARIABLE] = "3"
        five = nki.World(ranks=1, lnc=1, actor_options=ONE)
        found["error"] = error_of(five.start)
        del os.environ[START_VARIABLE]
        # It waits no longer than for the first: what was asked for is given back.
        threading.Timer(3, one.close).start()
        found["after a wait"] = right(five)
        five.close()
    big = {"resources": {"none": 1}}
    os.environ[START_VARIABLE] = "12"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found["never"] = error_of(nki.World(ranks=2, lnc=1, actor_options=big).start)
    found["told"] = [str(w.message) for w in caught if isinstance(w.message, errors.ClusterWarning)]
    del os.environ[START_VARIABLE]
    os.environ[OPTIONS_VARIABLE] = json.dumps(ONE)
    add_halves[2](X, X)
    found["of the environment"] = whole - free()
    add_halves[2]._world().close()
    found["given back"] = whole - free()
    return found


def least(cluster: Cluster) -> dict[str, Any]:
    """Four worlds, one after the other."""
    worlds = [nki.World(ranks=4, lnc=1) for _ in range(4)]
    ok = all(right(w) for w in worlds)
    at = [list(nodes(w)) for w in worlds]
    for world in worlds:
        world.close()
    return {"right": ok, "nodes": sorted(len(of) for of in at), "worlds of a node": counts(at)}


def counts(at: list[list[str]]) -> list[int]:
    every = [node for of in at for node in of]
    return sorted(every.count(node) for node in set(every))


def group(cluster: Cluster) -> dict[str, Any]:
    made = ray.util.placement_group([{"CPU": 2}], bundle_label_selector=[{"pool": "other"}])
    ray.get(made.ready())
    pool = {n["NodeID"]: n["Labels"].get("pool") for n in ray.nodes()}
    with nki.World(ranks=130, lnc=1, placement_group=made) as world:
        given = right(world), {pool[n] for n in nodes(world)} == {"other"}
        inside = len(world.host.processes)
    full = error_of(
        nki.World(ranks=2, lnc=1, placement_group=made, actor_options={"num_cpus": 3}).start
    )

    @ray.remote(num_cpus=1)
    def task(options: dict[str, Any] | None) -> tuple[bool, bool, int]:
        with nki.World(ranks=8, lnc=1, actor_options=options) as world:
            ok = right(world)
            return ok, {pool[n] for n in nodes(world)} == {"other"}, len(world.host.processes)

    strategy = PlacementGroupSchedulingStrategy(made, placement_group_capture_child_tasks=True)
    within = [
        ray.get(task.options(scheduling_strategy=strategy).remote(options))
        for options in (None, {"num_cpus": 1})
    ]
    world = nki.World(ranks=2, lnc=1, placement_group=made)
    right(world)
    ray.util.remove_placement_group(made)
    time.sleep(1)
    removed = [error_of(lambda: right(world)) for _ in range(2)]
    world.close()
    return {"given": given, "processes": inside, "full": full, "within": within, "removed": removed}


def sessions(cluster: Cluster) -> dict[str, Any]:
    """A program that leaves the cluster and joins it again, with a world and reservations."""
    ok = []
    world = nki.World(ranks=2, lnc=1, actor_options={"num_cpus": 1})
    for _ in range(4):
        ok.append(right(world) and np.array_equal(add_halves[2](X, X), X + X))
        ray.shutdown()
        ray.init(cluster.address, logging_level="ERROR")
    whole = free()
    ok.append(right(world))
    taken = whole - free()
    ray.shutdown()
    world.close()
    return {"right": ok, "taken": taken}


@nki.jit
def fill(x):
    """Writes 64 MiB of private HBM for each column."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 1 << 13), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(tile, value=1.0)
    much = nl.ndarray((16 * x.shape[1], 128, 1 << 13), dtype=nl.float32, buffer=nl.private_hbm)
    for n in nl.affine_range(16 * x.shape[1]):
        nisa.dma_copy(dst=much[n], src=tile)
    nisa.dma_copy(dst=out, src=x)
    return out


def memory(cluster: Cluster) -> dict[str, Any]:
    """Ray's memory monitor kills an actor that takes 6 GiB, as its limit is 2 GiB from here."""
    found: dict[str, Any] = {}
    with nki.World(ranks=2, lnc=1) as world:
        found["before"] = right(world)
        found["error"] = error_of(lambda: world.run(fill, np.ones((1, 96), np.float32)))
        found["after"] = right(world)
    with nki.World(ranks=2, lnc=1, retries=1) as world, warnings.catch_warnings(record=True) as got:
        warnings.simplefilter("always")
        found["again"] = error_of(lambda: world.run(fill, np.ones((1, 96), np.float32)))
        found["retries"] = sum(isinstance(w.message, errors.RetryWarning) for w in got)
    return found


def limit_memory() -> None:
    """Of the nodes that are started afterwards."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    kilobytes = {name: int(rest.split()[0]) for name, rest in (x.split(":") for x in lines)}
    total, used = kilobytes["MemTotal"], kilobytes["MemTotal"] - kilobytes["MemAvailable"]
    os.environ["RAY_memory_usage_threshold"] = f"{(used + (2 << 20)) / total:.4f}"  # noqa: SIM112 (Ray's name)
    os.environ["RAY_memory_monitor_refresh_ms"] = "50"  # noqa: SIM112


WHAT = {f.__name__: f for f in (reserves, least, group, sessions, memory)}


def main(what: str) -> None:
    os.environ["RAY_DEDUP_LOGS"] = "0"
    if what == "memory":
        limit_memory()
    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for pool in ("sim", "other"):
        cluster.add_node(num_cpus=4, object_store_memory=STORE, labels={"pool": pool})
    cluster.wait_for_nodes()
    ray.init(cluster.address, logging_level="ERROR")
    try:
        print(json.dumps(WHAT[what](cluster)), flush=True)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
