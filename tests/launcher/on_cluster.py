"""A program for test_cluster: worlds on a Ray cluster of several nodes on this machine.

`python -m tests.launcher.on_cluster NODES bits|kill` prints JSON for the test to look at.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
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
        nodes = [node for _, node in world.host.processes]
        per_instance = world.topology.ranks_per_instance
        split = len({nodes[n] for n, p in enumerate(world.host._packs) for c in p
                     if c.rank < per_instance})  # fmt: skip
    with nki.World.trn2(ranks=ranks, host="inprocess") as world:
        near = digest(world)
    return {"same": far == near, "nodes": len(set(nodes)), "nodes of instance 0": split}


def kill(cluster: Cluster, victim: Any, ranks: int) -> dict[str, Any]:
    group = ncc.ReplicaGroup([list(range(ranks))])
    with nki.World.trn2(ranks=ranks, address=cluster.address) as world:
        world.run(K.count_then_meet, np.array([[3]], np.int32), group)  # warm
        timer = threading.Timer(1.0, lambda: cluster.remove_node(victim, allow_graceful=False))
        timer.start()
        try:
            world.run(K.count_then_meet, np.array([[2**30]], np.int32), group)
            error = "none"
        except errors.NkiError as caught:
            error = type(caught).__name__
        timer.join()
        out = world.run(K.count_then_meet, np.array([[3]], np.int32), group)
        nodes = {node for _, node in world.host.processes}
    return {"error": error, "nodes after": len(nodes), "works again": not np.any(out)}


def main(count: int, what: str) -> None:
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": STORE}
    )
    added = [cluster.add_node(num_cpus=2, object_store_memory=STORE) for _ in range(count - 1)]
    cluster.wait_for_nodes()
    ranks = 64 * (count - 1) + 3  # trn2: 64 ranks to an instance
    try:
        found = bits(cluster, ranks) if what == "bits" else kill(cluster, added[-1], ranks)
        print(json.dumps(found), flush=True)
    finally:
        # In this order: a driver that sees its raylet die before it has left exits at once, with 1.
        # At interpreter exit Ray would stop the raylets first.
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
