"""The arguments of one case: fresh copies for every launch, float64 copies for the reference.

Invariant: the originals are handed to nobody, so they say afterwards what the inputs were. One
array that occurs twice is one array in every copy, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from nki_dist import dtypes, frameworks
from nki_dist.errors import LaunchError
from nki_dist.launcher.binding import of_rank
from nki_dist.program.pytree import flatten, tree_map
from nki_dist.testing.cases import Case

Array: TypeAlias = "np.ndarray[Any, Any]"
Call: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"

_SIGNS_SEED: Final = 20


def is_array(value: Any) -> bool:
    return frameworks.describe(value) is not None


def arrays(tree: Any) -> list[Any]:
    """The arrays of a tree, each once, in the order in which a launch numbers its inputs."""
    found = [leaf for _, leaf in flatten(tree, is_array)[0] if is_array(leaf)]
    return list({id(leaf): leaf for leaf in found}.values())


def copied(tree: Any) -> Any:
    """The same with copies of the arrays, of their framework."""

    def copy(leaf: Any) -> Any:
        if not is_array(leaf):
            return leaf
        return frameworks.like(frameworks.describe(leaf), frameworks.to_numpy(leaf).copy(order="K"))

    return tree_map(copy, tree, is_array)


class Arguments:
    """What a case passes, for every rank.

    Args:
        case: with its seed and distribution.
        ranks: of the world; with several, each gets its own made arrays, and arguments that hold
            arrays are lists with one entry per rank where a reference sees them.
    """

    def __init__(self, case: Case, ranks: int) -> None:
        self._ranks: list[Call] = []
        for rank in range(ranks):
            args, kwargs = case.inputs(rank)
            call = (
                tuple(of_rank(v, rank, ranks) for v in args),
                {name: of_rank(v, rank, ranks) for name, v in kwargs.items()},
            )
            # Arrays that the caller goes on using must not change under us.
            self._ranks.append(copied(call))

    def arrays(self, rank: int) -> list[Any]:
        """As they were before any launch."""
        return arrays(self._ranks[rank])

    def fresh(self) -> list[Call]:
        """Copies for a launch, per rank."""
        return [copied(call) for call in self._ranks]

    def for_reference(self, upcast: bool, change: float, draw: int) -> list[Call]:
        """Copies for the reference, per rank.

        Args:
            upcast: NumPy arrays, floats as float64; otherwise arrays as they are.
            change: multiply every float element by 1 plus or minus this.
            draw: which of the choices of signs.
        """
        rng = np.random.default_rng([_SIGNS_SEED, draw])

        def prepared(leaf: Any) -> Any:
            if not is_array(leaf):
                return leaf
            array = frameworks.to_numpy(leaf)
            is_float = dtypes.of(array.dtype).is_float
            changed = array.astype(np.float64) if is_float else array.copy()
            if is_float and change:
                changed *= 1 + change * rng.choice((-1.0, 1.0), array.shape)
            if upcast:
                return changed
            with np.errstate(all="ignore"):
                return frameworks.like(frameworks.describe(leaf), changed.astype(array.dtype))

        return [tree_map(prepared, call, is_array) for call in self._ranks]


def call_reference(reference: Callable[..., Any], calls: list[Call]) -> list[Any]:
    """What the reference returns for each rank.

    It is called with the names of the kernel's arguments, or where it has none of them, as NumPy's
    functions, with the arrays in order.

    Raises:
        LaunchError: it returned something else than a list with one entry per rank. What the
            reference raises itself is passed on.
    """
    args, kwargs = merged(calls, list) if len(calls) > 1 else calls[0]
    taken = {k: v for k, v in kwargs.items() if arrays(v) or _takes(reference, k)}
    tensors = {k: v for k, v in taken.items() if arrays(v)}
    if tensors and not any(_takes(reference, k) for k in tensors):  # such as np.exp: in order
        args = (*args, *tensors.values())
        taken = {k: v for k, v in taken.items() if k not in tensors}
    with np.errstate(all="ignore"):
        result = reference(*args, **taken)
    if len(calls) == 1:
        return [result]
    if not isinstance(result, (list, tuple)) or len(result) != len(calls):
        raise LaunchError(
            f"the reference returned {type(result).__name__} for {len(calls)} ranks; it must "
            "return a list with what each rank's kernel should",
            code="check-reference",
            numbers={"ranks": len(calls)},
        )
    return list(result)


def merged(calls: list[Call], several: Callable[[list[Any]], Any]) -> Call:
    """One call of those of the ranks: what holds arrays in `several`, the rest as rank 0 has it."""
    if len(calls) == 1:
        return calls[0]

    def merge(values: list[Any]) -> Any:
        return several(values) if arrays(values[0]) else values[0]

    args = tuple(merge([call[0][n] for call in calls]) for n in range(len(calls[0][0])))
    return args, {name: merge([call[1][name] for call in calls]) for name in calls[0][1]}


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function can be given a parameter by this name, as far as it can be known."""
    if isinstance(function, np.ufunc):  # no names; on Python 3.13 NumPy 2.1 says **kwargs of it
        return False
    try:
        inspect.signature(function).bind_partial(**{name: None})
    except (TypeError, ValueError):  # builtins needn't have a signature
        return False
    return True
