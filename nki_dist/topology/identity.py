"""Names of the things ranks run on: values of their own types, so that a chip is never a core.

Invariant: an identity is frozen, ordered as ranks are, and never negative. Whether the thing exists
in a certain world is for `Topology` to say. Not identities of processes or Ray nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nki_dist.errors import LaunchError


class _Id:
    """What has a number, within the first of its fields if that isn't the number.

    Attributes:
        called: how messages call such things.
    """

    called: ClassVar[str]
    number: int

    def __post_init__(self) -> None:
        value = self.number
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise LaunchError(
                f"{self.called} {value!r}; must be an int from 0 on",
                code="topology",
                numbers={"got": value, "least": 0},
            )

    def __str__(self) -> str:
        first = next(iter(vars(self).values()))
        within = f" of {first}" if isinstance(first, _Id) else ""
        return f"{self.called} {self.number}{within}"


@dataclass(frozen=True, order=True)
class RankId(_Id):
    """A logical core, numbered over the whole world."""

    called = "rank"
    number: int


@dataclass(frozen=True, order=True)
class InstanceId(_Id):
    """A machine with chips, numbered over the whole world."""

    called = "instance"
    number: int


@dataclass(frozen=True, order=True)
class ChipId(_Id):
    """A chip, numbered within its instance as neuron-ls does."""

    called = "chip"
    instance: InstanceId
    number: int


@dataclass(frozen=True, order=True)
class StackId(_Id):
    """An HBM stack, numbered within its chip."""

    called = "HBM stack"
    chip: ChipId
    number: int


@dataclass(frozen=True, order=True)
class CoreId(_Id):
    """A physical core, numbered within its chip."""

    called = "core"
    chip: ChipId
    number: int
