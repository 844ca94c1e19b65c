"""A world on a cluster whose nodes an autoscaler brings: python -m tests.launcher.on_autoscaler.

Ray's own fake of an autoscaler starts nodes of this machine as a provider starts machines. The head
has no processors. Prints what was found as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from ray import cluster_utils

os.environ.setdefault("RAY_DEDUP_LOGS", "0")
PROCESSORS = 2


class Cluster(cluster_utils.AutoscalingCluster):  # type: ignore[misc]
    """What Ray's wheel lacks the file for."""

    def _generate_config(
        self,
        head_resources: dict[str, float],
        worker_node_types: dict[str, Any],
        *_: Any,
        **more: Any,
    ) -> dict[str, Any]:
        head = {"resources": head_resources, "node_config": {}, "max_workers": 0}
        provider = {
            "type": "fake_multinode",
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "head_resources": head_resources,
        }
        lists = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray")
        return {
            "cluster_name": "fake",
            "max_workers": 8,
            "provider": provider,
            "available_node_types": {"ray.head.default": head, **worker_node_types},
            "head_node_type": "ray.head.default",
            "auth": {},
            "docker": {},
            "upscaling_speed": 1.0,
            "file_mounts": {},
            "cluster_synced_files": [],
            "file_mounts_sync_continuously": False,
            "rsync_exclude": [],
            "rsync_filter": [],
            **{f"{name}_commands": [] for name in (*lists, "worker_start_ray")},
            **{name: value for name, value in more.items() if name != "autoscaler_v2"},
        }


def main(options: dict[str, Any] | None) -> None:
    worker = {"resources": {"CPU": PROCESSORS, "object_store_memory": 200 << 20}}
    cluster = Cluster(
        {"CPU": 0},
        {"worker": {**worker, "node_config": {}, "min_workers": 0, "max_workers": 4}},
        idle_timeout_minutes=0.1,
    )
    cluster.start()
    import ray

    ray.init("auto", logging_level="ERROR")
    import numpy as np

    import nki_dist as nki
    from nki_dist.topology.topology import Topology
    from tests.launcher import kernels as K

    per = Topology(nki.World(ranks=1, lnc=1).arch, 512, 1).ranks_per_instance
    ranks = 4 * per
    xs, weights = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)
    found: dict[str, Any] = {"nodes before": len(_with_processors())}
    seen: list[float] = []
    began = time.monotonic()
    world = nki.World(ranks=ranks, lnc=1, actor_options=options)
    outs = world.run(K.add_weights, xs, weights)
    seen.append(time.monotonic() - began)
    found["right"] = all(np.array_equal(out, xs + weights) for out in outs)
    at = {node for _, node in world.host.processes}  # type: ignore[attr-defined]
    found["processes"] = len(world.host.processes)  # type: ignore[attr-defined]
    found["nodes used"], found["on the head"] = len(at), not at <= set(_with_processors())
    found["nodes"] = len(_with_processors())
    world.close()
    ends = time.monotonic() + 60
    while _with_processors() and time.monotonic() < ends:
        time.sleep(0.5)
    found["nodes after"] = len(_with_processors())
    print("seconds", seen, file=sys.stderr)
    print(json.dumps(found), flush=True)
    ray.shutdown()
    cluster.shutdown()


def _with_processors() -> list[str]:
    import ray

    return [n["NodeID"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else None)
