"""`nki-dist doctor --cluster`: can the nodes of a Ray cluster simulate cores, and the same bits.

Each node is looked at by a task that needs nothing of this package there and is waited for a while.
Checks are functions of plain facts, so they can be tried on clusters that aren't there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from nki_dist.cli.doctor.finding import GIB, STORE_ON_DISK, Finding, check_files
from nki_dist.cli.doctor.machine import ADDRESS
from nki_dist.cli.shared.command import refused

WAIT: Final = 20.0  # seconds for all nodes; a worker that is started, and imports


@dataclass(frozen=True)
class Node:
    """A node of the cluster.

    Attributes:
        title: as messages call it.
        resources: what Ray lists: "CPU", "memory" and "object_store_memory", the latter in bytes.
        seen: what a task found there (`core_actor.looking.looker`), or why none did.
        differs: its versions that aren't this program's, as texts.
        missing: why it can't import this package, or "".
    """

    title: str
    resources: Mapping[str, float]
    seen: Mapping[str, Any] | str
    differs: tuple[str, ...] = ()
    missing: str = ""

    @property
    def simulates(self) -> bool:
        """Whether worlds use it."""
        return bool(self.resources.get("CPU"))


def look(address: str | None) -> list[Node]:
    """The nodes of a cluster, which is joined.

    Args:
        address: that of RAY_ADDRESS if None.

    Raises:
        LaunchError: no cluster is named, or it can't be joined.
    """
    from nki_dist.core_actor import looking, ray_session  # they import Ray, which may be missing

    if (address or os.environ.get(ADDRESS) or "local") == "local":
        raise refused(
            f"--cluster looks at a cluster that runs: name one with --address HOST:PORT or in "
            f"{ADDRESS} ('auto' is the one of this machine)",
        )
    ray_session.ensure_ray(address)
    return [Node(*facts) for facts in looking.look_at_all(WAIT)]


def examine(nodes: list[Node]) -> list[Finding]:
    """All checks on a cluster."""
    found = [finding for node in nodes for finding in check_node(node)]
    return [*found, *check_equal(nodes), check_some(nodes)]


def check_node(n: Node) -> list[Finding]:
    """Whether it is there, and what it has."""
    cpus = n.resources.get("CPU", 0)
    role = f"{cpus:g} processors" if n.simulates else "no processors: simulates nothing"
    wrong = "FAIL" if n.simulates else "warn"
    if isinstance(n.seen, str):
        fix = "look at load and memory of that machine, and at the logs of Ray there (raylet.out)"
        return [Finding(wrong, "node", f"{n.title}: {n.seen}", fix, n.title)]
    package = Finding("ok", "package", "as here")
    if n.missing:
        fix = (
            "install nki_dist in the image of that node, or ship it in the programs' runtime_env "
            "(pip, py_modules, working_dir)"
        )
        package = Finding(wrong, "package", f"doesn't import: {n.missing}", fix)
    elif n.differs:
        fix = "install the same versions on all nodes, or ship them in the programs' runtime_env"
        package = Finding(wrong, "package", "; ".join(n.differs), fix)
    node = Finding("ok", "node", f"{n.title}: {role}, Ray {n.seen.get('ray', '?')}")
    found = (node, package, check_store(n, n.seen), check_files(n.seen.get("files", -1)))
    return [replace(finding, node=n.title) for finding in found]


def check_store(n: Node, seen: Mapping[str, Any]) -> Finding:
    """The object store holds shared_hbm of all ranks of the node; it lies in /dev/shm."""
    store, shm = n.resources.get("object_store_memory", 0.0), seen.get("shm")
    found = f"{store / GIB:.1f} GiB"
    raised = "`ray start --object-store-memory=` there (KubeRay: rayStartParams of its group)"
    if not shm:
        return Finding("warn", "object store", f"{found}, no /dev/shm", STORE_ON_DISK)
    found += f"; /dev/shm has {shm[0] / GIB:.1f} of {shm[1] / GIB:.1f} GiB free"
    if shm[1] < store:
        fix = (
            "give the machine, container or pod a larger /dev/shm (docker run --shm-size=; an "
            f"emptyDir with medium: Memory), or a smaller store by {raised}"
        )
        return Finding("warn", "object store", found, fix)
    if store < GIB and n.simulates:
        return Finding("warn", "object store", found, f"large tensors won't fit: {raised}")
    return Finding("ok", "object store", found)


def check_equal(nodes: list[Node]) -> list[Finding]:
    """Whether nodes compute products and functions by the same code."""
    by: dict[str, list[str]] = {}
    for n in nodes:
        if n.simulates and not isinstance(n.seen, str) and n.seen.get("products"):
            by.setdefault(n.seen["products"], []).append(n.title)
    if len(by) < 2:
        return [Finding("ok", "processors", next(iter(by), "of no node known"))]
    lines = "; ".join(f"{products} on {', '.join(titles)}" for products, titles in by.items())
    fix = (
        "last bits depend on the node: set OPENBLAS_CORETYPE to kernels that all have, and "
        "NPY_DISABLE_CPU_FEATURES to what some haven't, where Ray is started on each node"
    )
    return [Finding("warn", "processors", lines, fix)]


def check_some(nodes: list[Node]) -> Finding:
    count = sum(n.simulates for n in nodes)
    if not count:
        fix = "add a worker; until then everything runs on the head"
        return Finding("warn", "cluster", f"{len(nodes)} nodes, none has processors", fix)
    return Finding("ok", "cluster", f"{len(nodes)} nodes, {count} with processors")
