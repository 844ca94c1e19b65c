"""The nodes of the Ray cluster that this process is in."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def here() -> str:
    """The node of this process."""
    return ray.get_runtime_context().get_node_id()


def usable_nodes(gone: Collection[str] = ()) -> dict[str, int]:
    """Nodes that can simulate cores, with their processors; this one first if it has any.

    Args:
        gone: nodes that have ended, which Ray may not know yet.
    """
    alive = {n["NodeID"]: int(n["Resources"].get("CPU", 0)) for n in ray.nodes() if n["Alive"]}
    alive = {n: cpus for n, cpus in alive.items() if n not in gone}
    found = sorted((n for n in alive if alive[n]), key=lambda n: (n != here(), n))
    return {n: alive[n] for n in found} or {here(): 1}


def socket_folders() -> dict[str, str]:
    """Of each node the folder of the raylet's socket, which all of its processes reach."""
    return {n["NodeID"]: os.path.dirname(n.get("RayletSocketName", "")) for n in ray.nodes()}


def on_node(node: str) -> dict[str, Any]:
    """Options of an actor that must run on a node."""
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
