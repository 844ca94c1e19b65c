"""What a reference says of a case, and how far it moves when its inputs move a little."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from nki_dist import dtypes, frameworks
from nki_dist.errors import LaunchError, NkiError
from nki_dist.testing.arguments import Arguments, arrays, call_reference, is_array

Array: TypeAlias = "np.ndarray[Any, Any]"

Left: TypeAlias = "dict[str | int, Array]"
"""What a launch, or the reference, left on a rank: outputs by path, inputs by their number."""

_DRAWS: Final = 4


def left(result: Any, inputs: Sequence[Any]) -> Left:
    """What was left; an array that is returned several times is there under each path.

    Args:
        inputs: as they are afterwards, in the order of the launch's.
    """
    leaves = ((path, leaf) for path, leaf in _walk("", result) if leaf is not None)
    found: Left = {path: _as_array(path, leaf) for path, leaf in leaves}
    return found | dict(enumerate(map(frameworks.to_numpy, inputs)))


def _walk(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(f"{path}[{key!r}]", item)
    elif isinstance(value, (list, tuple)):
        for n, item in enumerate(value):
            yield from _walk(f"{path}[{n}]", item)
    else:
        yield path, value


def _called(
    reference: Callable[..., Any], arguments: Arguments, upcast: bool, change: float, draw: int
) -> list[Left]:
    """What one call of the reference leaves, per rank."""
    calls = arguments.for_reference(upcast, change, draw)
    handed = [arrays(call) for call in calls]
    return [left(*each) for each in zip(call_reference(reference, calls), handed)]


class Expected:
    """The reference's results of one case.

    Attributes:
        left: per rank, NumPy arrays.

    Raises:
        LaunchError: the reference raised something, or returned what can't be compared.
    """

    def __init__(
        self, reference: Callable[..., Any], arguments: Arguments, upcast: bool, case: str
    ) -> None:
        self._call = partial(_called, reference, arguments, upcast)
        self._moved: dict[float, list[list[Left]]] = {}
        try:
            self.left = self._call(0.0, 0)
        except NkiError:
            raise
        except Exception as error:
            raise LaunchError(
                f"the reference raised {type(error).__name__}: {error}; case {case}. The kernel "
                "isn't judged",
                code="check-reference",
            ) from error

    def moved(self, rank: int, where: str | int, change: float) -> Array:
        """The farthest that a result goes when float inputs are changed by so much, relatively.

        Args:
            where: path of an output, or the number of a written input.

        Returns:
            Per element; 0 where a result isn't finite, or the reference refuses such inputs.
        """
        if change not in self._moved:
            self._moved[change] = self._changed(change)
        at = np.ma.getdata(self.left[rank][where])
        farthest = np.zeros(at.shape)
        for called in self._moved[change]:
            there = np.ma.getdata(called[rank].get(where, np.zeros(())))
            if there.shape == at.shape:
                with np.errstate(all="ignore"):
                    far = np.abs(there.astype(np.float64) - at.astype(np.float64))
                np.fmax(farthest, np.where(np.isfinite(far), far, 0.0), out=farthest)
        return farthest

    def _changed(self, change: float) -> list[list[Left]]:
        found = []
        for draw in range(_DRAWS):
            try:
                found.append(self._call(change, draw))
            except Exception:
                # It may demand what changed inputs don't have, such as rows that sum to 1; then
                # nothing is known of how it moves, and nothing more is allowed.
                return []
        return found


def _as_array(path: str, leaf: Any) -> Array:
    array = frameworks.to_numpy(leaf) if is_array(leaf) else np.asarray(leaf)
    if array.dtype.kind in "fiub":
        return array
    try:
        dtypes.of(array.dtype)
    except NkiError:
        raise LaunchError(
            f"the reference returned {type(leaf).__name__} of dtype {array.dtype} as its result"
            f"{path}; allowed: arrays of numbers, in tuples, lists and dicts, and None",
            code="check-reference",
        ) from None
    return array
