"""Ray nodes: this one, and how messages call them, for who has to find the machine or the pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray


def here() -> str:
    """The node of this process."""
    return ray.get_runtime_context().get_node_id()


def node_of(node: str) -> dict[str, Any]:
    """What Ray lists of a node; nothing if it lists none of this id."""
    return next((dict(n) for n in ray.nodes() if n["NodeID"] == node), {})


def titled(listed: Mapping[str, Any]) -> str:
    """A node as messages call it: by its id, address, and the name of its machine or pod."""
    where = listed.get("NodeManagerAddress", ""), listed.get("NodeManagerHostname", "")
    names = ", ".join(dict.fromkeys(filter(None, where)))
    return f"Ray node {listed['NodeID']}" + (f" ({names})" if names else "")


def title(node: str) -> str:
    """`titled` of a node's id."""
    return titled({"NodeID": node, **node_of(node)})
