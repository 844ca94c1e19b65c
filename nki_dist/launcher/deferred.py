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

from nki_dist.compiler.locations import name_of
from nki_dist.errors import LaunchError
from nki_dist.launcher.binding import (
    Args,
    BoundArguments,
    Kwargs,
    PerRank,
    Same,
    bind_arguments,
    is_array,
    of_rank,
    take_array,
)
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
        expected = self.signature
        value = self.values.of(self.rank, self.ranks, expected.name)
        if not is_array(value):
            raise LaunchError(
                f"argument {expected.name} is {expected.shape} {expected.dtype} on rank 0 and "
                f"{type(value).__name__} on rank {self.rank}; per_rank functions return an array "
                "for every rank",
                code="ranks-differ",
                numbers={"rank": self.rank},
            )
        array, shape, dtype = take_array(self.kernel, expected.name, value)
        if (shape, dtype) != (expected.shape, expected.dtype):
            # Of the others nobody knows yet.
            usual = {(expected.shape, expected.dtype): [0]}
            raise unequal(expected.name, {**usual, (shape, dtype): [self.rank]})
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
    given = (*args, *kwargs.values())
    if not any(isinstance(v, PerRank) for v in given):
        return [bind_arguments(function, args, kwargs)] * ranks

    def bind(values: Sequence[Any]) -> BoundArguments:
        named = dict(zip(kwargs, values[len(args) :]))
        return bind_arguments(function, tuple(values[: len(args)]), named)

    first = [of_rank(v, 0, ranks) for v in given]
    mine = bind(first)
    later = _later([*zip(given, first)], mine) if defer else {}
    name = name_of(function)
    # What is the same for all ranks and holds no arrays is bound once: a replica group has as many
    # numbers as the world has ranks, and going through it for each takes longer than most launches.
    became = (*mine.args, *mine.kwargs.values())
    given = tuple(
        v if isinstance(v, PerRank) or _has_arrays(b) else Same(b) for v, b in zip(given, became)
    )
    found = [mine]
    for rank in range(1, ranks):
        other = bind(
            [f if id(f) in later else of_rank(v, rank, ranks) for v, f in zip(given, first)]
        )
        for index, values in later.values():
            array: Any = Deferred(values, name, mine.signatures[index], rank, ranks)
            other.arrays[index] = other.originals[index] = array
        found.append(other)
    check_same_signatures(found)
    return found


def _has_arrays(bound: Any) -> bool:
    leaves, _ = flatten(bound, lambda value: isinstance(value, TensorSignature))
    return any(isinstance(leaf, TensorSignature) for _, leaf in leaves)


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
                array if isinstance(o, Deferred) else o for o, array in zip(b.originals, arrays)
            ]
            found[id(b)] = replace(b, arrays=arrays, originals=originals)
    return [found[id(b)] for b in bound]
