"""The placement group that the instances of a world run in: one that it makes, or one it is given.

A world that reserves something makes a group with a bundle for each instance, so that an instance
stays on one node, what it needs is seen by whoever looks at the cluster, and an autoscaler brings
nodes. Ray waits for room without end and says nothing; here the wait is explained and bounded.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import ray
import ray.exceptions
from ray.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from nki_dist.core_actor.nodes import alive, available, private, processors
from nki_dist.core_actor.request import Request
from nki_dist.core_actor.watchdog import SessionLost
from nki_dist.errors import ClusterWarning, LaunchError
from nki_dist.hbm.nodes import here, title, titled
from nki_dist.runtime.progress import ticking
from nki_dist.runtime.settings import START_VARIABLE, reserve_timeout

LOOK_EVERY: Final = 0.25  # seconds
TOLD_AFTER: Final = 10.0  # seconds of waiting that are worth a warning
Check: TypeAlias = Callable[[], None]
SHOWN: Final = 8  # nodes that a message lists


def captured() -> PlacementGroup | None:
    """The group of the task or actor that this is in, if its children are to run there, too."""
    context = ray.get_runtime_context()
    within = context.should_capture_child_tasks_in_placement_group
    return get_current_placement_group() if within else None


class Reservation:
    """See the module's docstring.

    Args:
        group: of Ray.
        check: returns once Ray can be asked, raises if the session is lost.
        labels: that were asked for, for messages.

    Attributes:
        bundles: what each reserves.
    """

    def __init__(
        self, group: PlacementGroup, check: Check, labels: Mapping[str, str] | None = None
    ) -> None:
        self._group, self._check, self._labels = group, check, labels or {}
        self.bundles: list[dict[str, float]] = list(group.bundle_specs)

    @classmethod
    def create(cls, request: Request, processes: Sequence[int], check: Check) -> Reservation:
        """A new one; it may take long until it is there (`nodes`).

        Args:
            processes: of each instance, which gets a bundle.
        """
        labels = [request.labels] * len(processes) if request.labels else None
        bundles = [request.bundle(count) for count in processes]
        check()
        group = placement_group(bundles, strategy="PACK", bundle_label_selector=labels)
        return cls(group, check, request.labels)

    @property
    def id(self) -> str:
        """Ray's, as a hexadecimal number."""
        return self._group.id.hex()

    def removed(self) -> bool:
        """Whether somebody has removed it, or what it belonged to has ended."""
        return _state(placement_group_table(self._group)) == "REMOVED"

    def nodes(self, gone: Collection[str] = ()) -> list[str]:
        """The node of each bundle, once all have one.

        Args:
            gone: nodes that have ended, which Ray may not know yet; it moves bundles from there.

        Raises:
            LaunchError: the wait takes too long, or the group was removed.
        """
        limit, began, told = reserve_timeout(), time.monotonic(), False
        with ticking(f"waiting for Ray to reserve {self._request()}"):
            while True:
                self._check()
                table = placement_group_table(self._group)
                if _state(table) == "REMOVED":
                    raise LaunchError(
                        f"the placement group {self.id} that this world ran in was "
                        "removed; make another world",
                        code="core-not-reserved",
                    )
                at = table["bundles_to_node_id"]
                found = [at.get(n, "") for n in range(len(self.bundles))]
                if table["state"] == "CREATED" and not set(found) & set(gone):
                    return found
                waited = time.monotonic() - began
                if waited > limit:
                    raise self._not_reserved(table, limit)
                if waited > TOLD_AFTER and not told:
                    told = True
                    text = f"{self._explained(table)}\n  for {limit:g} s at most ({START_VARIABLE})"
                    warnings.warn(ClusterWarning(text, code="cluster-waits"), stacklevel=2)
                time.sleep(LOOK_EVERY)

    def options(self, bundle: Any) -> dict[str, Any]:
        """Options of an actor in a bundle."""
        return {
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=bundle
            )
        }

    def remove(self) -> None:
        """Give back what was reserved; with a session that is lost it is gone."""
        with suppress(SessionLost, ray.exceptions.RayError):
            self._check()
            remove_placement_group(self._group)

    # ---- messages -------------------------------------------------------------------------------

    def _request(self) -> str:
        kinds: dict[str, int] = {}
        for bundle in self.bundles:
            text = ", ".join(f"{name}: {amount:,g}" for name, amount in sorted(bundle.items()))
            kinds[text] = kinds.get(text, 0) + 1
        each = " and ".join(
            f"{count:,} bundle{'s' * (count > 1)} of {{{text}}}" for text, count in kinds.items()
        )
        labels = ", ".join(f"{name}={value}" for name, value in self._labels.items())
        return each + (f" on nodes with labels {labels}" if labels else "")

    def _explained(self, table: Mapping[str, Any]) -> str:
        lines = [f"this world waits until Ray has reserved {self._request()}"]
        if table.get("stats", {}).get("scheduling_state") == "INFEASIBLE":
            lines.append(
                "no node that is there has as much in all, only an autoscaler can bring one"
            )
        free, nodes = available(), alive()
        names = sorted({name for bundle in self.bundles for name in bundle})
        for node, facts in list(nodes.items())[:SHOWN]:
            has = ", ".join(
                f"{name}: {free.get(node, {}).get(name, 0):,g} of "
                f"{facts['Resources'].get(name, 0):,g} free"
                for name in names
            )
            labels = ", ".join(
                f"{name}={facts['Labels'].get(name, 'not set')}" for name in self._labels
            )
            lines.append(f"{titled(facts)} has {has}; {labels}")
        if len(nodes) > SHOWN:
            lines.append(f"{len(nodes) - SHOWN:,} more nodes")
        return "\n  - ".join(line.rstrip("; ") for line in lines)

    def _not_reserved(self, table: Mapping[str, Any], limit: float) -> LaunchError:
        return LaunchError(
            f"{self._explained(table)}\n  and gives up after {limit:g} s. Ask for less (num_cpus, "
            "or cores_per_actor=, which makes fewer processes), close worlds or jobs that hold it "
            f"(`ray status`), or add nodes; {START_VARIABLE}=SECONDS waits longer",
            code="core-not-reserved",
            numbers={"seconds": limit},
        )


def _state(table: Mapping[str, Any]) -> str:
    return str(table.get("state", "REMOVED"))  # a group that Ray has forgotten


def wait_for_processors(check: Check, gone: Collection[str] = ()) -> None:
    """Ask for a node with processors where a cluster has none, for as long as `nodes` waits.

    Where none comes the world runs on a node without, and a ClusterWarning says so.
    """
    if any(map(processors, alive(gone).values())) or _started_here():
        return
    probe = Reservation.create(Request({"num_cpus": 1}), [1], check)
    try:
        probe.nodes()
    except LaunchError:
        text = f"no Ray node has processors, and none came: cores are simulated on {title(here())}"
        warnings.warn(ClusterWarning(text, code="cluster-waits"), stacklevel=2)
    finally:
        probe.remove()


def _started_here() -> bool:
    """Whether this process has started its Ray, which no other nodes will join."""
    return bool(private("worker._global_node.head"))
