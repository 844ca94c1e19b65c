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

from nki_dist.cli.nccom_test.counts import Counts
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


def goldens(
    plan: Plan, inputs: Sequence[Array], written: int, counts: Counts | None
) -> Iterator[Golden]:
    """The expected output of every rank that takes part.

    Args:
        inputs: of all ranks of the world.
        written: elements of an output.
        counts: of operations with counts.
    """
    make = _MOVES.get(plan.op.opcode, _summed)
    for group in plan.groups:
        yield from make(plan, group, inputs, written, counts)


_Group: TypeAlias = "tuple[int, ...]"


def _summed(
    plan: Plan, group: _Group, inputs: Sequence[Array], written: int, counts: Counts | None
) -> Iterator[Golden]:
    """all_reduce and reduce_scatter."""
    total, tolerance = _sum([inputs[rank] for rank in group], plan.dtype.is_integer)
    for n, rank in enumerate(group):
        part = slice(None)
        if plan.op.writes_part:
            part = slice(n * written, (n + 1) * written)
        yield Golden(rank, total[part], None if tolerance is None else tolerance[part])


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


def _gathered(
    plan: Plan, group: _Group, inputs: Sequence[Array], written: int, counts: Counts | None
) -> Iterator[Golden]:
    whole = np.concatenate([inputs[rank] for rank in group])
    return (Golden(rank, whole) for rank in group)


def _exchanged(
    plan: Plan, group: _Group, inputs: Sequence[Array], written: int, counts: Counts | None
) -> Iterator[Golden]:
    blocks = [inputs[rank].reshape(len(group), -1) for rank in group]
    return (Golden(r, np.concatenate([b[n] for b in blocks])) for n, r in enumerate(group))


def _counted(
    plan: Plan, group: _Group, inputs: Sequence[Array], written: int, counts: Counts | None
) -> Iterator[Golden]:
    assert counts is not None
    outputs = {rank: np.zeros(written, plan.dtype.dtype) for rank in group}
    for chunk in counts.chunks(group, len(inputs[0]), written):
        moved = inputs[chunk.source][chunk.start : chunk.stop]
        outputs[chunk.target][chunk.at : chunk.at + len(moved)] = moved
    return (Golden(rank, values) for rank, values in outputs.items())


def _sent(
    plan: Plan, group: _Group, inputs: Sequence[Array], written: int, counts: Counts | None
) -> Iterator[Golden]:
    """A rank that nobody sends to keeps the zeros that its output begins with."""
    source = {b: a for a, b in plan.pairs}
    zeros = np.zeros(written, plan.dtype.dtype)
    return (Golden(r, inputs[source[r]] if r in source else zeros) for r in group)


_MOVES: Final[dict[str, Callable[..., Iterator[Golden]]]] = {
    "all_gather": _gathered,
    "all_to_all": _exchanged,
    "all_to_all_v": _counted,
    "all_gather_v": _counted,
    "collective_permute": _sent,
}
