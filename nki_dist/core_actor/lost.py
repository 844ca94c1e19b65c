"""What Ray raises where an actor is gone, and what it means.

Ray's memory monitor kills the process that it thinks the largest when a node runs short of memory,
and then calls of that actor raise an error that isn't one of actors.
"""

from __future__ import annotations

import re
from typing import Final

import ray.exceptions

LOST: Final = (
    ray.exceptions.RayActorError,
    ray.exceptions.ActorUnschedulableError,  # its node has just gone
    ray.exceptions.OutOfMemoryError,
)
# Of Ray's text, which differs between versions: what isn't found is left out.
_NODE: Final = re.compile(r"on the node \(IP: ([^,]+), ID: (\w+)\)")
_USED: Final = re.compile(r"was ([\d.]+GB[^/\n]*/ [\d.]+GB)")
_LIMIT: Final = re.compile(r"threshold of ([\d.]+B?(?: \([^)]*\))?)")


def cause(error: Exception) -> str:
    """What Ray says, in a line."""
    said = str(error).strip()
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return _short_of_memory(said)
    return said.splitlines()[0] if said else type(error).__name__


def _short_of_memory(said: str) -> str:
    node, used, limit = _NODE.search(said), _USED.search(said), _LIMIT.search(said)
    where = f"Ray node {node[2]} ({node[1]})" if node else "its Ray node"
    facts = f": {used[1].replace(' used', '')} in use" if used else ""
    facts += f", killed above {limit[1].rstrip('.')}" if limit else ""
    return (
        f"{where} was short of memory, and Ray's memory monitor killed it{facts}. Use smaller "
        "tensors or more nodes, reserve memory (actor_options={'memory': BYTES}), or give the "
        "node more"
    )
