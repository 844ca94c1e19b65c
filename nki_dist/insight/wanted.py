"""What results should have been, and how far results are from that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nki_dist.dtypes import DType
from nki_dist.errors import LaunchError
from nki_dist.program import Access

# Differences that are rounding, relative to the results: what a kernel that works in the type comes
# to, by its bits of precision. A choice.
ROUNDING: Final = ((20, 3e-4), (10, 3e-3), (7, 2e-2), (0, 0.15))


class Wanted:
    """The expected values of one output, of one element or all, of one rank or all.

    Args:
        a: the output.
        expected: a number, an array of the output's shape, or a list of these, one for each rank.
        index: the element that was asked about.
        rank: whose.
        ranks: how many there are.
        types: of the tensors that the element was computed in.

    Attributes:
        rounding: how far results may be off, relative to them, without being wrong.
        single: something is expected of one element only.

    Raises:
        LaunchError: the shapes differ.
    """

    def __init__(
        self,
        a: Access,
        expected: Any,
        index: tuple[int, ...],
        rank: int,
        ranks: int,
        types: Sequence[DType],
    ) -> None:
        if not isinstance(expected, (list, tuple)):
            expected = [expected if r == rank else None for r in range(ranks)]
        elif len(expected) != ranks:
            raise _unfit(f"a list of {len(expected)}; there are {ranks} ranks, each has an entry")
        self.ranks = [r for r, values in enumerate(expected) if values is not None]
        self._values = {r: _numbers(expected[r], a, index) for r in self.ranks}
        if rank not in self._values:
            raise _unfit(f"nothing for rank {rank}, whose element was asked for")
        self._places = {r: _known(expected[r], a, index) for r in self.ranks}
        self._at = self._values[rank].size and self._position(rank, a, index)
        self.single = sum(v.size for v in self._values.values()) == 1
        self.rounding = rounding_of(types)
        everything = np.concatenate([self._values[r] for r in self.ranks])
        finite = everything[np.isfinite(everything)]
        self._scale = (
            0.0 if self.single else 0.1 * float(np.sqrt((finite**2).sum() / max(finite.size, 1)))
        )
        self._everything = everything

    def _position(self, rank: int, a: Access, index: tuple[int, ...]) -> int:
        before = sum(self._values[r].size for r in self.ranks if r < rank)
        inside = 0 if self._values[rank].size == 1 else int(np.ravel_multi_index(index, a.shape))
        return before + inside

    def asked(self, errors: np.ndarray) -> float:
        """The error of the element that was asked about."""
        return float(errors[self._at])

    def wanted_number(self) -> float:
        """The value expected of that element."""
        return float(self._everything[self._at])

    def picked(self, outputs: dict[int, np.ndarray]) -> np.ndarray:
        """The results that something is expected of, of all ranks one after the other."""
        return np.concatenate(
            [outputs[r].astype(np.float64).reshape(-1)[self._places[r]] for r in self.ranks]
        )

    def number(self, picked: np.ndarray) -> float:
        """The element that was asked about."""
        return float(picked[self._at])

    def errors(self, picked: np.ndarray) -> np.ndarray:
        """By element, 0 (right but for rounding) to 1 (wrong altogether)."""
        want = self._everything
        with np.errstate(all="ignore"):
            found = np.abs(picked - want) / (np.abs(want) + self._scale)
        found = np.where(np.isnan(found), 1.0, np.minimum(found, 1.0))
        same = (picked == want) | (np.isnan(picked) & np.isnan(want))
        return np.where(same, 0.0, found)

    def beyond_rounding(self, errors: np.ndarray, asked: float) -> np.ndarray:
        """Errors without what rounding may be; of a small error that was asked about a third."""
        return np.maximum(errors - min(self.rounding, asked / 3), 0.0)


def _numbers(expected: Any, a: Access, index: tuple[int, ...]) -> np.ndarray:
    try:
        values = np.asarray(expected, np.float64)
    except (TypeError, ValueError):
        raise _unfit(
            f"{type(expected).__name__}, neither a number nor an array of numbers"
        ) from None
    if values.size == 1 and not values.shape:
        return values.reshape(1)
    if values.shape != a.shape:
        raise _unfit(f"an array of shape {values.shape}; the output has shape {a.shape}")
    return values.reshape(-1)


def _known(expected: Any, a: Access, index: tuple[int, ...]) -> np.ndarray:
    if np.ndim(expected):
        return np.arange(int(np.prod(a.shape)))
    return np.asarray([int(np.ravel_multi_index(index, a.shape))])


def rounding_of(types: Sequence[DType]) -> float:
    """How far results may be off, relative to them, that were computed in these types."""
    floats = [t for t in types if t.is_float and not t.is_mx]
    bits = min((_bits(t) for t in floats), default=23)
    return next(rounding for least, rounding in ROUNDING if bits >= least)


def _bits(t: DType) -> int:
    """Bits of precision of a type."""
    near = np.asarray([1.0], t.dtype)
    raw = near.view(t.raw)
    return int(-np.log2(float((raw + raw.dtype.type(1)).view(t.dtype)[0]) - 1.0) + 0.5)


def _unfit(what: str) -> LaunchError:
    return LaunchError(
        f"expected= is {what}",
        code="record-question",
        hint="give a number for the element, an array of the output's shape, or a list with one of "
        "these (or None) for each rank",
    )


__all__ = ["Wanted", "rounding_of"]
