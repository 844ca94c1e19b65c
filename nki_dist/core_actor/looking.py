"""Looking at Ray nodes, whatever is installed there, and saying why a process of ours fails there.

What looks is a task that needs nothing of this package where it runs (see `fingerprint.teller`),
reserves nothing, and is waited for a while only: a node may be frozen.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import ray
import ray.exceptions

from nki_dist.core_actor.fingerprint import MISSING, OURS, differences, teller, versions
from nki_dist.core_actor.lost import LOST
from nki_dist.core_actor.nodes import alive, on_node
from nki_dist.errors import LaunchError
from nki_dist.hbm.nodes import node_of, title, titled

LOOK_SECONDS: Final = 6.0  # a worker that is started for it, and imports
REACHED_SECONDS: Final = 1.0
LONGEST: Final = 400  # characters of what Ray says
SHIP: Final = (
    'ship it with the program (ray.init(runtime_env={"py_modules": [nki_dist]}); `ray job submit '
    '--runtime-env-json=` with "pip", or "working_dir" of a folder that has it), or install it '
    "where Ray's workers run: in the image of the nodes"
)


def looker() -> Callable[[], dict[str, Any]]:
    """A function that tells what a node has, in plain data; see `fingerprint.teller`."""
    tell = teller()

    def look() -> dict[str, Any]:
        found: dict[str, Any] = {"versions": tell(True), "ray": ray.__version__}
        try:
            from nki_dist.linking.blas import features, kernels

            found["products"] = f"{kernels()}, {features()}"
        except Exception:  # there is no such package or function, which `versions` tells
            found["products"] = ""
        found["files"] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        try:
            shm = os.statvfs("/dev/shm")
            found["shm"] = [shm.f_bavail * shm.f_frsize, shm.f_blocks * shm.f_frsize]
        except OSError:
            found["shm"] = []
        return found

    return look


def look_at(nodes: Iterable[str], seconds: float) -> dict[str, dict[str, Any] | str]:
    """What nodes have, by their ids; instead of that why one doesn't say, after `seconds`."""
    task = ray.remote(num_cpus=0, max_retries=0)(looker())
    calls = {
        node: task.options(
            name="nki-dist looks at a node",
            **on_node(node),
        ).remote()
        for node in nodes
    }
    ray.wait(list(calls.values()), num_returns=len(calls), timeout=seconds)
    found: dict[str, dict[str, Any] | str] = {}
    for node, call in calls.items():
        try:
            found[node] = ray.get(call, timeout=0)
        except ray.exceptions.GetTimeoutError:
            found[node] = f"it doesn't answer for {seconds:g} s"
            ray.cancel(call, force=True)
        except ray.exceptions.RayError as error:
            found[node] = reason(error)
    return found


def look_at_all(seconds: float) -> list[tuple[str, dict[str, float], Any, tuple[str, ...], str]]:
    """Of each node that lives: title, resources, what `look_at` has, its versions that aren't this
    process's, and why it can't import this package, or ""."""
    nodes, found = alive(), []
    for node, seen in zip(nodes.values(), look_at(nodes, seconds).values()):
        there = {} if isinstance(seen, str) else seen["versions"]
        why = there.get(OURS, "").removeprefix(MISSING) if absent(there) else ""
        differ = tuple(differences(there, versions())) if there else ()
        found.append((titled(node), dict(node["Resources"]), seen, differ, why))
    return found


def absent(there: Mapping[str, str]) -> bool:
    """Whether these are the versions of a process that can't import this package."""
    return there.get(OURS, "").startswith(MISSING)


def reason(error: Exception) -> str:
    """What an error of Ray says in the end, where the cause is."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^~")]
    return (lines[-1] if lines else type(error).__name__)[:LONGEST]


def refusal(error: Exception, node: str) -> LaunchError | None:
    """Why a process on a node failed before it simulated anything; None if it isn't the node's way.

    A node that is about to go makes whatever it does fail, which doesn't say anything.

    Args:
        error: of making the process, or of its first call.
    """
    died = isinstance(error, ray.exceptions.RayActorError) and error.actor_init_failed
    if (isinstance(error, LOST) and not died) or not reached(node):
        return None
    if isinstance(error, ray.exceptions.RuntimeEnvSetupError):
        return LaunchError(
            f"{title(node)} can't make the runtime environment of this program: "
            f"{' '.join(str(error).split())[-LONGEST:]}",
            code="runtime-env",
        )
    said = reason(error)
    if f"No module named '{OURS}'" in said:
        return missing(title(node), said)
    seen = look_at([node], LOOK_SECONDS)[node]
    if isinstance(seen, str):
        return _failed(node, f"{said}; {seen}") if died else None
    there = seen["versions"]
    if absent(there):
        return missing(title(node), there[OURS].removeprefix(MISSING))
    if differ := differences(there, versions()):
        return differing([(title(node), differ)], said)
    return _failed(node, said) if died else None


def missing(where: str, why: str) -> LaunchError:
    """The error where this package isn't."""
    return LaunchError(f"{where} can't import nki_dist: {why}: {SHIP}", code="package-missing")


def differing(nodes: list[tuple[str, list[str]]], said: str = "") -> LaunchError:
    """The error where nodes aren't like this program.

    Args:
        nodes: their titles, and what differs.
        said: the error that this explains.
    """
    lines = "".join(f"\n  - {where} has {'; '.join(found)}" for where, found in nodes)
    return LaunchError(
        "nodes of this world have other versions than this program, so its results would depend on "
        f"the node:{lines}\n  Install the same versions on all nodes (one image), or ship them "
        "with the program (runtime_env: pip, py_modules or working_dir). `nki-dist doctor "
        "--cluster` shows all nodes" + (f". There it failed with: {said}" if said else ""),
        code="nodes-differ",
        numbers={"nodes": len(nodes)},
    )


def _failed(node: str, why: str) -> LaunchError:
    return LaunchError(
        f"{title(node)} can't start processes of this world: {why}. Another version of a package "
        "may be there; `nki-dist doctor --cluster` looks at all nodes, and the logs of Ray's "
        "workers on that node say more",
        code="core-not-started",
    )


def reached(node: str) -> bool:
    """Whether a node is there, as far as anybody knows."""
    listed = node_of(node)
    if not listed.get("Alive"):
        return False
    where = listed["NodeManagerAddress"], listed["NodeManagerPort"]
    try:
        socket.create_connection(where, REACHED_SECONDS).close()
    except OSError:
        return False
    return True
