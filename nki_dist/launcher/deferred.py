"""Arguments that functions make, rank by rank, where and when they are needed.

Rank 0's is made by the launcher, because the kernel is traced for its shape and dtype. The others'
are made as the stacks are filled, by the process that fills them: on a cluster on the node of the
rank, which gets the function instead of arrays. So a launch holds no arrays that only other nodes
need, and on one machine one at a time instead of as many as there are ranks.

Made with all others by the launcher: what the kernel writes (the caller's array gets it), arrays
of other frameworks, and arrays that stand for several arguments of a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nki_dist.errors import LaunchError
from nki_dist.launcher.binding import (
    Args,
    BoundArguments,
    Kwargs,
    PerRank,
    bind_arguments,
    is_array,
    of_rank,
    take_array,
)
from nki_dist.launcher.same_values import same_values
from nki_dist.launcher.unequal import check_same_signatures, unequal
from nki_dist.program import TensorSignature
from nki_dist.program.pytree import flatten


@dataclass(frozen=True, eq=False)
class Deferred:
    """One rank's array of an argument; called, it makes it. Sent to another node, it takes the
    function along.

    Attributes:
        values: the argument.
        kernel: name, for messages.
        signature: of rank 0's array.
        ranks: of the world.
    """

    values: PerRank
    kernel: str
    signature: TensorSignature
    rank: int
    ranks: int

    def __call__(self) -> np.ndarray:
        """The rank's array.

        Raises:
            LaunchError: the function raised, or its array isn't of rank 0's shape and dtype.
            NkiValidationError: NKI has no such dtype.
        """
        wanted = self.signature
        value = self.values.of(self.rank, self.ranks, wanted.name)
        if not is_array(value):
            raise LaunchError(
                f"argument {wanted.name} is {wanted.shape} {wanted.dtype} on rank 0 and "
                f"{type(value).__name__} on rank {self.rank}; per_rank functions return an array "
                "for every rank",
                code="ranks-differ",
                numbers={"rank": self.rank},
            )
        array, shape, dtype = take_array(self.kernel, wanted.name, value)
        if (shape, dtype) != (wanted.shape, wanted.dtype):
            # Of the others nobody knows yet.
            usual = {(wanted.shape, wanted.dtype): [0]}
            raise unequal(wanted.name, {**usual, (shape, dtype): [self.rank]})
        return array


def bind_ranks(
    function: Callable[..., Any], args: Args, kwargs: Kwargs, ranks: int, defer: bool = False
) -> list[BoundArguments]:
    """The arguments of every rank; one object for all of them where they don't differ.

    Args:
        defer: have a Deferred in place of arrays that needn't be made yet.

    Raises:
        LaunchError: as of `bind_arguments`, or ranks differ in more than contents, as far as it can
            be seen before all are made.
    """
    if not any(isinstance(v, PerRank) for v in (*args, *kwargs.values())):
        return [bind_arguments(function, args, kwargs)] * ranks
    first = (
        [of_rank(v, 0, ranks) for v in args],
        {k: of_rank(v, 0, ranks) for k, v in kwargs.items()},
    )
    mine = bind_arguments(function, tuple(first[0]), first[1])
    given = [*zip(args, first[0]), *((v, first[1][k]) for k, v in kwargs.items())]
    later = _later(given, mine) if defer else {}
    name = getattr(function, "__name__", type(function).__name__)
    found = [mine]
    args, kwargs = same_values((args, kwargs), (mine.args, mine.kwargs), PerRank)
    for rank in range(1, ranks):

        def of(value: Any, bound: Any, rank: int = rank) -> Any:
            return bound if id(bound) in later else of_rank(value, rank, ranks)

        positional = tuple(map(of, args, first[0]))
        named = {k: of(v, first[1][k]) for k, v in kwargs.items()}
        other = bind_arguments(function, positional, named)
        for index, values in later.values():
            made: Any = Deferred(values, name, mine.signatures[index], rank, ranks)
            other.arrays[index] = other.originals[index] = made
        found.append(other)
    check_same_signatures(found)
    return found


def _later(
    given: Sequence[tuple[Any, Any]], mine: BoundArguments
) -> dict[int, tuple[int, PerRank]]:
    """By the id of rank 0's array, index and argument of what can be made later.

    Args:
        given: each argument, and what rank 0 gets for it.
    """
    if mine.framework is not None:
        return {}
    leaves = [id(leaf) for _, bound in given for _, leaf in flatten(bound, is_array)[0]]
    indices = {id(original): index for index, original in enumerate(mine.originals)}
    return {
        id(bound): (indices[id(bound)], value)
        for value, bound in given
        if isinstance(value, PerRank)
        and callable(value.values)
        and isinstance(bound, np.ndarray)
        and leaves.count(id(bound)) == 1
    }


def settled(bound: Sequence[BoundArguments]) -> list[BoundArguments]:
    """The same arguments with all arrays made."""
    found: dict[int, BoundArguments] = {}
    for b in bound:
        if id(b) not in found:
            arrays = [a() if isinstance(a, Deferred) else a for a in b.arrays]
            originals = [
                made if isinstance(o, Deferred) else o for o, made in zip(b.originals, arrays)
            ]
            found[id(b)] = replace(b, arrays=arrays, originals=originals)
    return [found[id(b)] for b in bound]
