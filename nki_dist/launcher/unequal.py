"""Ranks whose arguments differ in more than contents, those that are unlike most named first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nki_dist.dtypes import DType
from nki_dist.errors import LaunchError
from nki_dist.launcher.binding import BoundArguments
from nki_dist.ranges import named


def check_same_signatures(bound: Sequence[BoundArguments]) -> None:
    """All ranks run one program, so arguments may differ in contents only.

    Args:
        bound: of each rank.

    Raises:
        LaunchError: they differ in more; says which ranks have other ones than most.
    """
    first = bound[0]
    if len(bound) == 1:
        return
    types = [(s.shape, s.dtype) for s in first.signatures]
    if all(_like(b, first, types) for b in bound[1:]):
        return
    for n, signature in enumerate(first.signatures):
        ranks: dict[Any, list[int]] = {}
        for rank, b in enumerate(bound):
            if n < len(b.signatures):
                mine = b.signatures[n]
                ranks.setdefault((mine.shape, mine.dtype), []).append(rank)
        if len(ranks) > 1:
            raise unequal(signature.name, ranks)
    odd = [rank for rank, b in enumerate(bound) if not _like(b, first, types)]
    most = 2 * len(odd) > len(bound)
    others = named([rank for rank in range(len(bound)) if rank not in set(odd)])
    raise LaunchError(
        f"{others if most else named(odd)} {_has(len(bound) - len(odd) if most else len(odd))} "
        f"other compile-time arguments than {named(odd) if most else others}; only arrays may "
        "differ between ranks (a kernel asks for its rank with nki.collectives.rank_id)",
        code="ranks-differ",
    )


def _has(ranks: int) -> str:
    return "has" if ranks == 1 else "have"


def _like(b: BoundArguments, first: BoundArguments, types: Sequence[tuple[Any, DType]]) -> bool:
    same = b is first or [(s.shape, s.dtype) for s in b.signatures] == types
    return same and (b.args, b.kwargs) == (first.args, first.kwargs)


def unequal(name: str, ranks: Mapping[tuple[tuple[int, ...], DType], Sequence[int]]) -> LaunchError:
    """The error for an array whose shape or dtype differs between ranks.

    Args:
        name: of the argument.
        ranks: by shape and dtype. The fewest are named first, of equally many the lower.
    """
    (odd, few), *_, (usual, most) = sorted(
        ranks.items(), key=lambda item: (len(item[1]), item[1][0])
    )
    return LaunchError(
        f"argument {name} is {odd[0]} {odd[1]} on {named(few)} and {usual[0]} {usual[1]} on "
        f"{named(most)}; all ranks run the same program, so shapes and dtypes must agree",
        code="ranks-differ",
        numbers={"rank": few[0], "got": odd[0], "others": usual[0]},
    )
