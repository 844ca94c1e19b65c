"""A program for test_cluster: worlds on a Ray cluster of several nodes on this machine.

`python -m tests.launcher.on_cluster NODES bits|kill|retry|join` prints JSON for the test.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
import warnings
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

import nki_dist as nki
import nki_dist.collectives as ncc
from nki_dist import errors
from tests.launcher import kernels as K

STORE = 200 << 20


def digest(world: nki.World) -> str:
    """Of the results of two kernels, one with per-rank and common inputs, one that exchanges."""
    rng = np.random.default_rng(world.ranks)
    xs = [rng.standard_normal((6, 40), np.float32) for _ in range(world.ranks)]
    weights = rng.standard_normal((6, 40), np.float32)
    group = ncc.ReplicaGroup([list(range(world.ranks))])
    found = hashlib.sha256()
    for out in world.run(K.add_weights, nki.per_rank(xs), weights):
        found.update(out.tobytes())
    for out in world.run(K.sum_of_ranks, nki.per_rank(xs), group):
        found.update(out.tobytes())
    world.run(K.return_weights, nki.per_rank(xs), weights)  # writes to the callers' arrays
    assert all(np.array_equal(x, weights) for x in xs)
    return found.hexdigest()


def bits(cluster: Cluster, ranks: int) -> dict[str, Any]:
    with nki.World.trn2(ranks=ranks, address=cluster.address) as world:
        far = digest(world)
        made = made_by(world)
        nodes = [node for _, node in world.host.processes]
        per_instance = world.topology.ranks_per_instance
        split = len({nodes[n] for n, p in enumerate(world.host._packs) for c in p
                     if c.rank < per_instance})  # fmt: skip
    with nki.World.trn2(ranks=ranks, host="inprocess") as world:
        near = digest(world)
    return {"same": far == near, "nodes": len(set(nodes)), "nodes of instance 0": split, **made}


def made_by(world: nki.World) -> dict[str, Any]:
    """How many processes make the arrays of functions; what is told of one that can't be made."""
    weights = np.zeros((6, 4), np.int32)
    lock = threading.Lock()  # can't be sent to another node

    def own(rank: int) -> np.ndarray:
        return np.full((6, 4), os.getpid(), np.int32)

    def here(rank: int) -> np.ndarray:
        with lock:
            return own(rank)

    def bad(rank: int) -> np.ndarray:
        return own(rank)[: 6 - (rank == world.ranks - 1)]

    found = [
        {int(out[0, 0]) for out in world.run(K.add_weights, nki.per_rank(make), weights)}
        for make in (own, here)
    ]
    try:
        world.run(K.add_weights, nki.per_rank(bad), weights)
    except errors.LaunchError as error:
        told = str(error)
    return {"makers": [len(pids) for pids in found], "told": told}


def kill(cluster: Cluster, victim: Any, ranks: int) -> dict[str, Any]:
    group = ncc.ReplicaGroup([list(range(ranks))])
    with nki.World.trn2(ranks=ranks, address=cluster.address) as world:
        world.run(K.count_then_meet, np.array([[3]], np.int32), group)  # warm
        killed: list[float] = []

        def remove() -> None:
            killed.append(time.monotonic())
            cluster.remove_node(victim, allow_graceful=False)

        timer = threading.Timer(1.0, remove)
        timer.start()
        try:
            world.run(K.count_then_meet, np.array([[2**30]], np.int32), group)
            error = "none"
        except errors.NkiError as caught:
            error = type(caught).__name__
        took = time.monotonic() - killed[0]
        timer.join()
        out = world.run(K.count_then_meet, np.array([[3]], np.int32), group)
        nodes = {node for _, node in world.host.processes}
        again = time.monotonic() - killed[0] - took
    # For people: when a run is started by hand, it says how long things took.
    print(f"error after {took:.1f} s, next launch done {again:.1f} s later", file=sys.stderr)
    return {"error": error, "nodes after": len(nodes), "works again": not np.any(out)}


def retry(cluster: Cluster, victim: Any) -> dict[str, Any]:
    """A node dies during a launch that is run again; the kernel adds to its inputs in place."""
    ranks = 32 * 3 + 2  # trn1: 32 ranks to an instance
    rng = np.random.default_rng(11)
    start = [rng.standard_normal((6, 40), np.float32) for _ in range(ranks)]
    group = ncc.ReplicaGroup([list(range(ranks))])

    def run(world: nki.World, rounds: int) -> list[bytes]:
        xs = [x.copy() for x in start]
        count = np.array([[rounds]], np.int32)
        outs = world.run(K.accumulate, nki.per_rank(xs), count, group)
        return [out.tobytes() for out in (*outs, *xs)]

    rounds = 60
    with nki.World(ranks=ranks, platform="trn1", host="inprocess") as world:
        undisturbed = run(world, rounds)
    with nki.World(ranks=ranks, platform="trn1", address=cluster.address, retries=1) as world:
        run(world, 1)
        before = {node for _, node in world.host.processes}
        threading.Timer(0.5, cluster.remove_node, (victim, False)).start()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            same = run(world, rounds) == undisturbed
        after = {node for _, node in world.host.processes}
    return {
        "same": same,
        "nodes": [len(before), len(after)],
        "warnings": [type(w.message).__name__ for w in caught],
    }


def join(cluster: Cluster) -> dict[str, Any]:
    """Two worlds at once on nodes that aren't the launcher's, and a third on a node that joins."""
    options = {"address": cluster.address, "timeout": 300}
    with nki.World.trn2(ranks=67, **options) as one, nki.World.trn2(ranks=70, **options) as two:
        far = [digest(one), digest(two), digest(one)]
        used = [{node for _, node in world.host.processes} for world in (one, two)]
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
        cluster.wait_for_nodes()
        with nki.World.trn2(ranks=130, **options) as three:
            far.append(digest(three))
            used.append({node for _, node in three.host.processes})
        far.append(digest(two))
        used.append({node for _, node in two.host.processes})
        head = ray.get_runtime_context().get_node_id()
    near = {}
    for ranks in (67, 70, 130):
        with nki.World.trn2(ranks=ranks, host="inprocess") as world:
            near[ranks] = digest(world)
    return {
        "same": far == [near[n] for n in (67, 70, 67, 130, 70)],
        "nodes": [len(nodes) for nodes in used],
        "on the head": any(head in nodes for nodes in used),
    }


def main(count: int, what: str) -> None:
    cpus = 0 if what == "join" else 2  # of the head, where the launcher runs
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": cpus, "object_store_memory": STORE}
    )
    added = [cluster.add_node(num_cpus=2, object_store_memory=STORE) for _ in range(count - 1)]
    cluster.wait_for_nodes()
    ranks = 64 * (count - 1) + 3  # trn2: 64 ranks to an instance
    try:
        if what == "join":
            found = join(cluster)
        elif what == "retry":
            found = retry(cluster, added[-1])
        else:
            found = bits(cluster, ranks) if what == "bits" else kill(cluster, added[-1], ranks)
        print(json.dumps(found), flush=True)
    finally:
        # In this order: a driver that sees its raylet die before it has left exits at once, with 1.
        # At interpreter exit Ray would stop the raylets first.
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
