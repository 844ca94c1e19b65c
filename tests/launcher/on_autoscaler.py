"""A world on a cluster whose nodes an autoscaler brings, with actor_options of JSON or none.

Ray's fake of a provider starts nodes of this machine as others start machines; its head listens on
PORT, which the fake has by heart. Ray's `AutoscalingCluster` would first end every Ray of this
machine. Prints what was found as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

os.environ["RAY_AUTH_MODE"] = "disabled"  # before Ray is imported, here and in its processes

import numpy as np
import ray

import nki_dist as nki
from tests.clusters import ray_folder
from tests.launcher import kernels as K

PORT: Final = 6379
PROCESSORS: Final = 2


def free() -> bool:
    """Whether nobody has the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", PORT)) != 0


def config() -> dict[str, Any]:
    head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    has = {"CPU": PROCESSORS, "object_store_memory": 200 << 20}
    lists = ("initialization", "setup", "head_setup", "worker_setup")
    return {
        "cluster_name": "fake",
        "max_workers": 4,
        "provider": {
            "type": "fake_multinode",
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "head_resources": {"CPU": 0},
        },
        "available_node_types": {
            "ray.head.default": head,
            "worker": {"resources": has, "node_config": {}, "min_workers": 0, "max_workers": 4},
        },
        "head_node_type": "ray.head.default",
        "idle_timeout_minutes": 0.1,
        "upscaling_speed": 1.0,
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        **{f"{name}_commands": [] for name in lists},
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
    }


def end(folder: str) -> None:
    """All servers of Ray whose files are in a folder, which each is told; workers go with them."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if folder in (process / "cmdline").read_text(errors="replace"):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended


def workers() -> set[str]:
    return {n["NodeID"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")}


def look(options: dict[str, Any] | None) -> dict[str, Any]:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    before = len(workers())
    with nki.World(ranks=512, lnc=1, actor_options=options) as world:
        outs = world.run(K.add_weights, x, x)
        used, there = {node for _, node in world.host.processes}, workers()
    ends = time.monotonic() + 90
    while workers() and time.monotonic() < ends:
        time.sleep(0.5)
    return {
        "right": len(outs) == 512 and all(np.array_equal(out, x + x) for out in outs),
        "before": before,
        "used": len(used),
        "on the head": not used <= there,
        "after": len(workers()),
    }


def main(options: dict[str, Any] | None) -> None:
    if not free():
        print(json.dumps({"skip": f"somebody has port {PORT}"}))
        return
    with ray_folder() as ours:
        folder = ours["RAY_TMPDIR"]
        file = Path(folder, "config.json")
        file.write_text(json.dumps(config()))
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--num-cpus=0"]
        more = {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
        try:
            subprocess.run(
                [*command, f"--port={PORT}", f"--autoscaling-config={file}"],
                check=True,
                env={**os.environ, **ours, **more},
                stdout=subprocess.DEVNULL,
            )
            ray.init(f"127.0.0.1:{PORT}", logging_level="ERROR")
            print(json.dumps(look(options)), flush=True)
        finally:
            ray.shutdown()
            end(folder)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else None)
