"""The nodes of the Ray cluster that this process is in."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from typing import Any, Final, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from nki_dist.hbm.nodes import here

_T = TypeVar("_T")
CORE_CLASS: Final = "NeuronCore"
_STARTED: Final = ("ALIVE", "PENDING_CREATION")


def private(path: str) -> Any:
    """A part of Ray that it doesn't promise, such as "state.actors"; None where it has none."""
    found: Any = getattr(ray, "_private", None)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def in_worker() -> bool:
    """Whether this process runs tasks or an actor of Ray, and isn't a driver."""
    worker = getattr(ray.get_runtime_context(), "worker", None) if ray.is_initialized() else None
    return getattr(worker, "mode", None) == ray.WORKER_MODE


def alive(gone: Collection[str] = ()) -> dict[str, dict[str, Any]]:
    """What Ray lists of each node that lives.

    Args:
        gone: nodes that have ended, which Ray may not know yet.
    """
    return {n["NodeID"]: n for n in ray.nodes() if n["Alive"] and n["NodeID"] not in gone}


def processors(node: dict[str, Any]) -> int:
    """Those that Ray says a node has: in a container fewer than the machine's."""
    return int(node["Resources"].get("CPU", 0))


def usable_nodes(gone: Collection[str] = ()) -> dict[str, int]:
    """Nodes that can simulate cores, with their processors; this one first if it has any.

    Args:
        gone: as in `alive`.
    """
    has = {name: count for name, n in alive(gone).items() if (count := processors(n))}
    found = sorted(has, key=lambda n: (n != here(), n))
    return {n: has[n] for n in found} or {here(): 1}


def simulating() -> Counter[str]:
    """Per node the processes that simulate cores, of all programs of the cluster.

    Ray tells what an actor reserves, and ours reserve nothing; who wants to know how many there are
    where asks its table of actors. There is no public way without Ray's dashboard: where this one
    is gone, a node's load is what is reserved there.
    """
    return Counter(a["Address"]["NodeID"] for state in _STARTED for a in _cores(state))


def constructing() -> int:
    """Actors of the cluster that have a process and aren't up yet: a sign that it gets on."""
    return sum(a.get("Pid", 0) != 0 for a in _cores("PENDING_CREATION"))


def _cores(state: str) -> list[dict[str, Any]]:
    ask = private("state.actors")
    try:
        actors = {} if ask is None else ask(actor_state_name=state)
    except TypeError:  # another one
        return []
    return [a for a in actors.values() if a["ActorClassName"] == CORE_CLASS]


def reserved() -> dict[str, float]:
    """Per node the processors that tasks, actors and placement groups have reserved."""
    nodes, free = alive(), available()
    return {n: processors(nodes[n]) - free[n].get("CPU", 0.0) for n in nodes.keys() & free}


def available() -> dict[str, dict[str, float]]:
    """Per node what isn't reserved; empty where Ray doesn't say."""
    ask = private("state.available_resources_per_node")
    return {} if ask is None else dict(ask())


def free_in(node: str, group: str, bundle: int, specified: dict[str, float]) -> dict[str, float]:
    """What isn't taken of a bundle of a placement group; all of it where Ray doesn't say."""
    free, end = available().get(node, {}), f"_group_{bundle}_{group}"
    told = f"bundle{end}" in free  # what each bundle has; Ray leaves out what is all taken
    return {n: free.get(n + end, 0.0 if told else v) for n, v in specified.items()}


def socket_folders() -> dict[str, str]:
    """Of each node the folder of the raylet's socket, which all of its processes reach."""
    return {n["NodeID"]: os.path.dirname(n.get("RayletSocketName", "")) for n in ray.nodes()}


def on_node(node: str) -> dict[str, Any]:
    """Options of an actor that must run on a node."""
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
