"""Sees that all processes of a world compute the same bits: versions, and code for the processor.

The same program has the same bits wherever the same versions compute it, products are added in the
same order, which is up to the BLAS that a process loaded (its version, and the kernels it chose for
the processor), and NumPy chose the same code for the processor. Other versions are refused, other
processors are told of.

They say it in plain data, as this package may be another one there.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from nki_dist.core_actor.fingerprint import OURS, differences, imported, versions
from nki_dist.core_actor.looking import differing
from nki_dist.errors import ClusterWarning
from nki_dist.hbm.nodes import here, title
from nki_dist.linking.blas import features, kernels

SHOWN: Final = 8  # nodes of a line


class Member(NamedTuple):
    """A process of a world.

    Attributes:
        node: of Ray, by its id.
        products: its BLAS, and NumPy's code.
        versions: as in `fingerprint`.
    """

    pid: int
    node: str
    products: str
    versions: Mapping[str, str] = MappingProxyType({OURS: "a version that tells nothing"})

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Member:
        """From what it told, which another version may have put together."""
        return cls(**{name: told[name] for name in cls._fields if name in told})


def place() -> tuple[str, ...]:
    """Processes of one place have the same files: of this package, NumPy and what lies beside."""
    return here(), sys.prefix, str(sys.modules["nki_dist"].__file__), str(np.__file__)


def introduction(launcher: tuple[str, ...]) -> dict[str, Any]:
    """What a `Member` says of itself.

    Args:
        launcher: its `place`; what lies there is the same, and needn't be imported or read.
    """
    mine = place()
    return {
        "pid": os.getpid(),
        "node": mine[0],
        "products": f"{kernels()}, {features()}",
        "versions": imported() if mine == tuple(launcher) else versions(),
    }


def require_versions(members: Iterable[Member]) -> None:
    """See that processes have the versions of this one, before they're told anything of ours.

    Raises:
        LaunchError: nodes have others.
    """
    mine = imported()
    others = {m.node: m.versions for m in members if not m.versions.items() <= mine.items()}
    found = [(node, differences(there, versions(), partly=True)) for node, there in others.items()]
    if found := [(title(node), differ) for node, differ in found if differ]:
        raise differing(found)


def compare(members: Sequence[Member], told: str) -> str:
    """Warn of what nodes differ in, unless that is what was told already; what was told by now."""
    warning = otherwise(members)
    if warning is None or warning.message == told:
        return told
    warnings.warn(warning, stacklevel=2)
    return warning.message


def otherwise(members: Sequence[Member]) -> ClusterWarning | None:
    """What nodes of the same versions differ in that decides about bits, or None."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for member in members:
        nodes[member.products].add(member.node)
    if len(nodes) < 2:
        return None
    lines = []
    for products, names in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0])):
        shown = ", ".join(sorted(names)[:SHOWN])
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        lines.append(f"{products} on {len(names):,} of them: {shown}{more}")
    return ClusterWarning(
        "processes of this world compute with code for different processors, so the last bits of "
        "results depend on which node computes them; Ray nodes have\n  - " + "\n  - ".join(lines),
        code="blas-differs",
    )
