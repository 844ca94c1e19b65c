"""Index expressions of Beta 1: `nl.arange(128)[:, None] * 2 + 1`, `nl.mgrid[0:128, 0:512]`.

An `Index` is an integer for every point of a tile, `start + sum(step[d] * i[d])`, so that strides
of an access pattern follow without enumerating. What may not be of that form (`//`, `%` and
products of two expressions) is refused. Shapes broadcast as in NumPy; `mgrid` is dense, as
documented: each of its indices has the shape of the whole grid.

Follows: `nki.language.arange`, `nki.language.mgrid` of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from nki_dist.compat.beta1.mask import Box, Mask, Term, compared, joint_shape
from nki_dist.errors import NkiValidationError


def _comparison(op: str) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        difference = self._combine(other, -1)
        if difference is NotImplemented:
            return NotImplemented
        return compared(Mask(difference.shape, (Term(difference, op),)))

    return operator


class Index:
    """An integer for each point of `shape`.

    Attributes:
        shape: of the points.
        start: value at the origin.
        steps: by axis, 0 for an axis it doesn't depend on.
    """

    __slots__ = ("shape", "start", "steps")
    __array_ufunc__ = None  # a NumPy integer on the left leaves the operator to us
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shape: tuple[int, ...], start: int, steps: tuple[int, ...]) -> None:
        self.shape = shape
        self.start = start
        # Along an axis of size 1 it is one number, also once it is broadcast there.
        self.steps = (
            tuple(0 if n == 1 else s for n, s in zip(shape, steps)) if 1 in shape else steps
        )

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def array(self) -> np.ndarray:
        """The numbers, in an array that broadcasts to `shape`."""
        total = np.full((1,) * len(self.shape), self.start, np.int64)
        for axis, (n, step) in enumerate(zip(self.shape, self.steps)):
            if step:
                along = [1] * len(self.shape)
                along[axis] = n
                total = total + (step * np.arange(n)).reshape(along)
        return total

    def bounds(self, box: Box | None = None) -> tuple[int, int]:
        """Least and greatest value, within a box of the shape."""
        box = box or tuple((0, n) for n in self.shape)
        low = high = self.start
        for step, (lo, hi) in zip(self.steps, box):
            ends = (step * lo, step * (hi - 1))
            low += min(ends)
            high += max(ends)
        return low, high

    def to_rank(self, rank: int) -> Index:
        """With axes of size 1 in front."""
        more = rank - len(self.shape)
        if not more:
            return self
        shape, steps = (1,) * more + self.shape, (0,) * more + self.steps
        return Index(shape, self.start, steps)

    def spread(self, shape: tuple[int, ...]) -> Index:
        """Broadcast to a shape of at least its rank."""
        mine = self.to_rank(len(shape))
        return Index(shape, mine.start, mine.steps)

    # ---- new axes ---------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Index:
        key = key if isinstance(key, tuple) else (key,)
        kept = [k for k in key if k is not None]
        if any(k != slice(None) for k in kept) or len(kept) > len(self.shape):
            raise NkiValidationError(
                f"an index expression of shape {self.shape} subscripted by {key}; allowed: `:` for "
                "each dimension and None for new ones, such as nl.arange(128)[:, None]",
                code="index-kind",
                numbers={"shape": self.shape},
            )
        key = key + (slice(None),) * (len(self.shape) - len(kept))
        axes = iter(range(len(self.shape)))
        sources = [None if k is None else next(axes) for k in key]
        shape = tuple(1 if s is None else self.shape[s] for s in sources)
        steps = tuple(0 if s is None else self.steps[s] for s in sources)
        return Index(shape, self.start, steps)

    # ---- arithmetic -------------------------------------------------------------------------

    def _combine(self, other: Any, sign: int) -> Any:
        if isinstance(other, (int, np.integer)):
            return Index(self.shape, self.start + sign * int(other), self.steps)
        if not isinstance(other, Index):
            return NotImplemented
        a, b = _together(self, other)
        steps = tuple(m + sign * n for m, n in zip(a.steps, b.steps))
        return Index(a.shape, a.start + sign * b.start, steps)

    def __add__(self, other: Any) -> Any:
        return self._combine(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._combine(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._combine(other, 1)

    def __neg__(self) -> Index:
        return self * -1

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, (int, np.integer)):
            n = int(other)
            return Index(self.shape, self.start * n, tuple(s * n for s in self.steps))
        return self._refused(other) if isinstance(other, Index) else NotImplemented

    __rmul__ = __mul__

    def _refused(self, other: Any) -> NoReturn:
        raise NkiValidationError(
            f"//, % or a product of index expressions, here of shape {self.shape}; allowed: sums, "
            "and products with ints. Cut the tile with loops, or choose rows of HBM by a tile of "
            "integers",
            code="index-kind",
            numbers={"shape": self.shape},
        )

    __floordiv__ = __mod__ = _refused

    # ---- comparisons ------------------------------------------------------------------------

    __lt__ = _comparison("less")
    __le__ = _comparison("less_equal")
    __gt__ = _comparison("greater")
    __ge__ = _comparison("greater_equal")
    __eq__ = _comparison("equal")
    __ne__ = _comparison("not_equal")

    def __iter__(self) -> Any:
        raise NkiValidationError(
            f"Python can't loop over an index expression (here of shape {self.shape}): it stands "
            "for all of its numbers at once. For a loop write `for i in nl.affine_range(n)`, or "
            "nl.sequential_range if iterations depend on earlier ones",
            code="index-kind",
            numbers={"shape": self.shape},
        )

    def __bool__(self) -> bool:
        raise NkiValidationError(
            "Python can't branch on an index expression: it stands for many numbers; pass a "
            "comparison as mask=",
            code="branch-on-index",
        )

    def __repr__(self) -> str:
        return f"<index {self.shape}: {self.start} + {self.steps}>"


def _together(a: Index, b: Index) -> tuple[Index, Index]:
    rank = max(len(a.shape), len(b.shape))
    a, b = a.to_rank(rank), b.to_rank(rank)
    shape = joint_shape([a.shape, b.shape], "index expressions")
    return a.spread(shape), b.spread(shape)


def arange(*args: Any) -> Index:
    """Consecutive integers, as `range`; give it axes with `[:, None]`."""
    numbers = range(*(int(a) for a in args))
    if not len(numbers):
        raise NkiValidationError(f"nl.arange{args} is empty", code="shape-empty")
    return Index((len(numbers),), numbers.start, (numbers.step,))


class Grid(tuple):
    """The indices of a grid, one per dimension, also by name: p, x, y, z, w."""

    __slots__ = ()
    p = property(lambda self: self[0])
    x = property(lambda self: self[1])
    y = property(lambda self: self[2])
    z = property(lambda self: self[3])
    w = property(lambda self: self[4])


class _MGrid:
    """`nl.mgrid[0:128, 0:512]`: indices of every point of a grid."""

    def __getitem__(self, key: Any) -> Grid:
        key = key if isinstance(key, tuple) else (key,)
        ranges = [range(int(k.start or 0), int(k.stop), int(k.step or 1)) for k in key]
        shape = tuple(len(r) for r in ranges)
        if 0 in shape:
            message = f"nl.mgrid of shape {shape} is empty"
            raise NkiValidationError(message, code="shape-empty", numbers={"got": shape})
        return Grid(
            Index(
                shape,
                r.start,
                tuple(r.step if d == axis else 0 for d in range(len(shape))),
            )
            for axis, r in enumerate(ranges)
        )

    def __repr__(self) -> str:
        return "nl.mgrid"


mgrid = _MGrid()
