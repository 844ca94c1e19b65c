"""What a collective's outputs have to be, worked out with NumPy from all inputs.

What is only moved must be the same bits, and integers the same numbers; they wrap as in the ALU. A
sum of floats is compared with one in float64: it may differ by the rounding of each addition in
float32, and by that of the result to its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np

from nki_dist.cli.nccom_test.plan import Plan

Array: TypeAlias = "np.ndarray[Any, Any]"

_FLOAT32_EPS: Final = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Golden:
    """The expected output of a rank.

    Attributes:
        values: in the output's dtype, or float64 where `tolerance` says how far off it may be.
    """

    rank: int
    values: Array
    tolerance: Array | None = None

    def differs(self, output: Array) -> int | None:
        """The first element that is wrong, or None."""
        if self.tolerance is None:
            raw = np.dtype(f"u{output.dtype.itemsize}")
            wrong = output.view(raw) != self.values.view(raw)
        else:
            # Not `off > tolerance`: NaN is wrong, too.
            wrong = ~(np.abs(output.astype(np.float64) - self.values) <= self.tolerance)
        return int(np.argmax(wrong)) if wrong.any() else None


def goldens(plan: Plan, inputs: Sequence[Array], written: int) -> Iterator[Golden]:
    """The expected output of every rank that takes part.

    Args:
        inputs: of all ranks of the world.
        written: elements of an output.
    """
    done = _Done(plan, inputs, written)
    for group in plan.groups:
        yield from _OPERATIONS.get(plan.op.opcode, _Done.summed)(done, group)


_Group: TypeAlias = "tuple[int, ...]"


@dataclass(frozen=True)
class _Done:
    """What each operation gives the ranks of a group; fields as of `goldens`."""

    plan: Plan
    inputs: Sequence[Array]
    written: int

    def summed(self, group: _Group) -> Iterator[Golden]:
        """all_reduce and reduce_scatter."""
        total, tolerance = _sum([self.inputs[rank] for rank in group], self.plan.dtype.is_integer)
        for n, rank in enumerate(group):
            part = slice(None)
            if self.plan.op.writes_part:
                part = slice(n * self.written, (n + 1) * self.written)
            yield Golden(rank, total[part], None if tolerance is None else tolerance[part])

    def gathered(self, group: _Group) -> Iterator[Golden]:
        whole = np.concatenate([self.inputs[rank] for rank in group])
        return (Golden(rank, whole) for rank in group)

    def exchanged(self, group: _Group) -> Iterator[Golden]:
        blocks = [self.inputs[rank].reshape(len(group), -1) for rank in group]
        return (Golden(r, np.concatenate([b[n] for b in blocks])) for n, r in enumerate(group))

    def sent(self, group: _Group) -> Iterator[Golden]:
        """A rank that nobody sends to keeps the zeros that its output begins with."""
        given = {b: self.inputs[a] for a, b in self.plan.pairs}
        zeros = np.zeros(self.written, self.plan.dtype.dtype)
        return (Golden(rank, given.get(rank, zeros)) for rank in group)


_OPERATIONS: Final[dict[str, Callable[[_Done, _Group], Iterator[Golden]]]] = {
    "all_gather": _Done.gathered,
    "all_to_all": _Done.exchanged,
    "all_to_all_v": _Done.exchanged,  # in equal parts
    "all_gather_v": _Done.gathered,
    "collective_permute": _Done.sent,
}


def _sum(arrays: Sequence[Array], exact: bool) -> tuple[Array, Array | None]:
    if exact:
        total = arrays[0].copy()
        for array in arrays[1:]:
            total += array
        return total, None
    total, size = (np.zeros(arrays[0].shape, np.float64) for _ in range(2))
    for array in arrays:
        wide = array.astype(np.float64)
        total += wide
        size += np.abs(wide)
    about: Any = ml_dtypes.finfo(arrays[0].dtype)  # type: ignore[no-untyped-call]
    added = len(arrays) * _FLOAT32_EPS * size
    rounded = float(about.eps) * np.abs(total) + float(about.smallest_subnormal)
    return total, added + rounded
