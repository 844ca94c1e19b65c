"""What processes of a world say of themselves when they are connected, and whether it fits.

The same program has the same bits wherever its products are added in the same order, and that is up
to the BLAS that a process loaded: to its version, and to the kernels it chose for the processor.
"""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import ray

from nki_dist.errors import ClusterWarning
from nki_dist.runtime.blas import kernels

SHOWN: Final = 8  # nodes of a line


class Member(NamedTuple):
    """A process of a world.

    Attributes:
        node: of Ray, by its id.
        blas: what nodes may differ in is a field, seen to by `differing`.
        reached: whether it can be reached in the folder of the world's sockets.
    """

    pid: int
    node: str
    blas: str
    reached: bool = True

    @classmethod
    def here(cls, reached: bool) -> Member:
        return cls(os.getpid(), ray.get_runtime_context().get_node_id(), kernels(), reached)


def differing(members: Sequence[Member]) -> ClusterWarning | None:
    """What nodes differ in that decides about bits, or None."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for member in members:
        nodes[member.blas].add(member.node)
    if len(nodes) < 2:
        return None
    lines = []
    for blas, names in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0])):
        shown = ", ".join(sorted(names)[:SHOWN])
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        lines.append(f"{blas} on {len(names):,} of them: {shown}{more}")
    return ClusterWarning(
        "processes of this world multiply matrices with different kernels, so the last bits of "
        "products depend on which node computes them; Ray nodes have\n  - " + "\n  - ".join(lines),
        code="blas-differs",
    )


def compare(members: Sequence[Member], told: str) -> str:
    """Warn of what nodes differ in, unless that is what was told already; what was told by now."""
    warning = differing(members)
    if warning is None or warning.message == told:
        return told
    warnings.warn(warning, stacklevel=2)
    return warning.message
