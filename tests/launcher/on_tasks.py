"""A program for test_idle: kernels in a task and an actor of Ray, and a World that nobody closes.

`python -m tests.launcher.on_tasks` prints JSON for the test.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import ray

import nki_dist as nki
from nki_dist.launcher.session import session
from tests.launcher import kernels as K

X = np.ones((2, 3), np.float32)


def cores() -> int:
    """Actors of this package that live."""
    found = ray._private.state.actors().values()
    return sum(a["State"] == "ALIVE" and "NeuronCore" in a["ActorClassName"] for a in found)


def summed(launch: Any) -> float:
    return float(launch(K.add_weights, X, X)[0][0, 0])


@ray.remote(num_cpus=1)
def implicit() -> float:
    return float(K.add_weights[2](X, X)[0, 0])


@ray.remote(num_cpus=1)
def explicit() -> float:
    with nki.World(lnc=2) as other:
        first = summed(other.run)
    world = session().world("kept", lambda: nki.World(lnc=2))  # which nobody closes
    again = summed(world.run)
    world.rest(0.0)
    return first + again + summed(world.run)  # it has started again


@ray.remote(num_cpus=1)
class Actor:
    def host(self) -> str:
        K.add_weights[2](X, X)
        return str(K.add_weights[2]._world().host_name)


def main() -> None:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    values, seen = [ray.get(implicit.remote())], [cores()]
    idle = explicit.options(runtime_env={"env_vars": {"NKI_DIST_IDLE": "3"}})
    values.append(ray.get(idle.remote()))
    seen.append(cores())
    end = time.monotonic() + 30
    while cores() and time.monotonic() < end:
        time.sleep(0.1)
    seen.append(cores())
    host = ray.get(Actor.remote().host.remote())  # type: ignore[attr-defined]
    print(json.dumps({"values": values, "cores": seen, "host of an actor": host}), flush=True)


if __name__ == "__main__":
    main()
