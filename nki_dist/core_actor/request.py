"""What a world asks of Ray for each of its processes: `World(actor_options=, placement_group=)`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nki_dist.core_actor.actor import NeuronCore
from nki_dist.errors import LaunchError

NAMES: Final = ("num_cpus", "memory", "resources", "label_selector", "runtime_env")
LEAST: Final = {"memory": 1.0}  # of a bundle, which Ray wants to reserve something


@dataclass(frozen=True)
class Request:
    """See the module's docstring.

    Attributes:
        options: Ray's, of an actor.
        group: a placement group to run in, or None.
    """

    options: Mapping[str, Any]
    group: Any = None

    @classmethod
    def of(cls, options: object, group: object = None, where: str = "actor_options") -> Request:
        """What the arguments say.

        Raises:
            LaunchError: Ray has no such options, or they can't be had together.
        """
        options = {} if options is None else options
        if not isinstance(options, Mapping):
            raise _wrong(f"{where}={options!r}", "must be a dict")
        for name in options:
            if name not in NAMES:
                raise _wrong(f"{where} has {name!r}", f"allowed: {', '.join(NAMES)}")
        given = {name: value for name, value in options.items() if value is not None}
        amounts = {n: given[n] for n in ("num_cpus", "memory") if n in given}
        resources = given.get("resources", {})
        if isinstance(resources, Mapping):
            amounts |= {f"resources[{name!r}]": value for name, value in resources.items()}
        for name, value in amounts.items():
            _check_amount(f"{where}: {name}", value)
        try:
            NeuronCore.options(**given)  # type: ignore[attr-defined]
        except (TypeError, ValueError) as error:
            raise _wrong(f"{where}={options!r}", str(error)) from None
        if group is not None and not hasattr(group, "bundle_specs"):
            raise _wrong(f"placement_group={group!r}", "must be a ray.util.placement_group(...)")
        if group is not None and "label_selector" in given:
            raise _wrong(
                f"placement_group= with {where}={options!r}",
                "the group has chosen its nodes: give label_selector as its bundle_label_selector",
            )
        return cls(given, group)

    @property
    def amounts(self) -> dict[str, float]:
        """What a process reserves, by Ray's resource."""
        found = {"CPU": self.options.get("num_cpus", 0), "memory": self.options.get("memory", 0)}
        found |= self.options.get("resources", {})
        return {name: float(value) for name, value in found.items() if value}

    @property
    def labels(self) -> dict[str, str]:
        """What a node's labels must be."""
        return dict(self.options.get("label_selector", {}))

    def suits(self, labels: Mapping[str, str]) -> bool:
        """Whether a node may have what is asked for; only Ray knows where there are operators."""
        plain = {n: v for n, v in self.labels.items() if not v.startswith(("!", "in("))}
        return plain.items() <= labels.items()

    @property
    def reserves(self) -> bool:
        """Whether Ray chooses the nodes."""
        return bool(self.amounts or self.labels)

    @property
    def environment(self) -> dict[str, Any]:
        """Options of every actor of the world, also of those that simulate nothing."""
        return {n: v for n, v in self.options.items() if n == "runtime_env"}

    @property
    def inside(self) -> dict[str, Any]:
        """Options of an actor in a bundle, whose node has the labels already."""
        return {n: v for n, v in self.options.items() if n != "label_selector"}

    def bundle(self, processes: int) -> dict[str, float]:
        """What so many reserve together."""
        return {name: processes * value for name, value in self.amounts.items()} or dict(LEAST)

    def fitting(self, resources: Mapping[str, float]) -> int | None:
        """How many processes fit into these resources; None if any number does."""
        counts = [math.floor(resources.get(n, 0) / value) for n, value in self.amounts.items()]
        return min(counts) if counts else None


NOTHING: Final = Request({})


def _check_amount(name: str, value: object) -> None:
    number = float(value) if type(value) in (int, float) else math.nan  # type: ignore[arg-type]
    if 0 <= number <= 1 or (math.isfinite(number) and number > 1 and number == int(number)):
        return
    raise _wrong(f"{name}={value!r}", "must be a whole number, or one between 0 and 1")


def _wrong(what: str, rule: str) -> LaunchError:
    return LaunchError(f"{what}: {rule.strip().rstrip('.')}", code="world-option")
