"""Arguments that are the same for all ranks and hold no arrays: bound once, whatever they hold.

A replica group has as many numbers as the world has ranks; to go through it for each of them took
longer than most launches of large worlds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from nki_dist.program import TensorSignature
from nki_dist.program.pytree import flatten

Arguments: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"


@dataclass(frozen=True)
class Same:
    """In the place of an argument: what binding it has given for another rank."""

    value: Any


def same_values(given: Arguments, bound: Arguments, per_rank: type) -> Arguments:
    """Arguments for the ranks after the first, of which nothing is gone through again in vain.

    Args:
        given: positional ones and those with names, as the caller has passed them.
        bound: what became of them for the first rank.
        per_rank: class of arguments that each rank has its own of.
    """

    def chosen(argument: Any, became: Any) -> Any:
        return argument if isinstance(argument, per_rank) or _has_arrays(became) else Same(became)

    positional = tuple(map(chosen, given[0], bound[0]))
    return positional, {name: chosen(a, bound[1][name]) for name, a in given[1].items()}


def _has_arrays(became: Any) -> bool:
    leaves, _ = flatten(became, lambda value: isinstance(value, TensorSignature))
    return any(isinstance(leaf, TensorSignature) for _, leaf in leaves)
