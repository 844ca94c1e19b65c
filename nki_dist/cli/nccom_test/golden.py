"""What a collective's outputs have to be, worked out with NumPy from all inputs.

What is only moved must be the same bits, and integers the same numbers; they wrap as in the ALU. A
sum of floats is compared with one in float64: it may differ by the rounding of each addition in
float32, and by that of the result to its type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    for group in plan.groups:
        given = [inputs[rank] for rank in group]
        for rank, expected in zip(group, _expected(plan, group, given, written), strict=True):
            yield Golden(rank, *expected)


def _expected(
    plan: Plan, group: Sequence[int], given: Sequence[Array], written: int
) -> list[tuple[Array, Array | None]]:
    """Values and tolerances for the ranks of a group.

    Args:
        given: their inputs.
    """
    match plan.op.opcode:
        case "all_gather" | "all_gather_v":
            return [(np.concatenate(given), None)] * len(group)
        case "all_to_all" | "all_to_all_v":  # in equal parts
            parts = zip(*(array.reshape(len(group), -1) for array in given))
            return [(np.concatenate(part), None) for part in parts]
        case "collective_permute":  # who gets nothing keeps the zeros that its output begins with
            sent = {target: given[group.index(source)] for source, target in plan.pairs}
            zeros = np.zeros(written, plan.dtype.dtype)
            return [(sent.get(rank, zeros), None) for rank in group]
    total, tolerance = _sum(given, plan.dtype.is_integer)
    if not plan.op.writes_part:
        return [(total, tolerance)] * len(group)
    spans = [slice(n * written, (n + 1) * written) for n in range(len(group))]
    return [(total[at], None if tolerance is None else tolerance[at]) for at in spans]


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
