"""Names of the things ranks run on: values of their own types, so that a chip is never a core.

Invariant: an identity is frozen, ordered as ranks are, and never negative. Whether the thing exists
in a certain world is for `Topology` to say. Not identities of processes or Ray nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from nki_dist.errors import LaunchError


def _natural(what: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise LaunchError(
            f"{what} {value!r}; must be an int from 0 on",
            code="topology",
            numbers={"got": value, "least": 0},
        )


@dataclass(frozen=True, order=True)
class RankId:
    """A logical core, numbered over the whole world."""

    number: int

    def __post_init__(self) -> None:
        _natural("rank", self.number)

    def __str__(self) -> str:
        return f"rank {self.number}"


@dataclass(frozen=True, order=True)
class InstanceId:
    """A machine with chips, numbered over the whole world."""

    number: int

    def __post_init__(self) -> None:
        _natural("instance", self.number)

    def __str__(self) -> str:
        return f"instance {self.number}"


@dataclass(frozen=True, order=True)
class ChipId:
    """A chip, numbered within its instance as neuron-ls does."""

    instance: InstanceId
    number: int

    def __post_init__(self) -> None:
        _natural("chip", self.number)

    def __str__(self) -> str:
        return f"chip {self.number} of {self.instance}"


@dataclass(frozen=True, order=True)
class StackId:
    """An HBM stack, numbered within its chip."""

    chip: ChipId
    number: int

    def __post_init__(self) -> None:
        _natural("HBM stack", self.number)

    def __str__(self) -> str:
        return f"HBM stack {self.number} of {self.chip}"


@dataclass(frozen=True, order=True)
class CoreId:
    """A physical core, numbered within its chip."""

    chip: ChipId
    number: int

    def __post_init__(self) -> None:
        _natural("core", self.number)

    def __str__(self) -> str:
        return f"core {self.number} of {self.chip}"
