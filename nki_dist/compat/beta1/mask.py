"""Masks of Beta 1: comparisons of index expressions, known when the kernel is traced.

Most masks are bounds (`i_p < n`), so they shrink access patterns to a box. Any other mask is a set
of points; it is covered by boxes where data is moved, and by a predicate where it is computed on.

Follows: "Supported Masking in NKI" of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from nki_dist.compat.beta1.state import active, state
from nki_dist.errors import NkiValidationError

Box = tuple[tuple[int, int], ...]

INVERSE = {
    "less": "greater_equal",
    "greater_equal": "less",
    "greater": "less_equal",
    "less_equal": "greater",
    "equal": "not_equal",
    "not_equal": "equal",
}


@dataclass(frozen=True)
class Term:
    """`index op 0`."""

    index: Any
    op: str

    def holds(self) -> np.ndarray:
        return getattr(np, self.op)(self.index.array(), 0)

    def axes(self) -> list[int]:
        """Axes it depends on."""
        return [d for d, s in enumerate(self.index.steps) if s and self.index.shape[d] > 1]


class Mask:
    """The points of `shape` where all terms hold, or that `points` lists.

    Attributes:
        shape: of the index expressions.
        terms: conjunction of comparisons, or None.
        points: booleans that broadcast to the shape, or None.
    """

    __slots__ = ("points", "shape", "terms")

    def __init__(
        self, shape: tuple[int, ...], terms: Any = None, points: np.ndarray | None = None
    ) -> None:
        self.shape = shape
        self.terms = terms
        self.points = points

    def array(self) -> np.ndarray:
        """Booleans that broadcast to `shape`."""
        if self.points is not None:
            return self.points
        found = np.ones((1,) * len(self.shape), bool)
        for term in self.terms:
            found = found & term.holds()
        return found

    def _join(self, other: Any, function: Any) -> Any:
        if isinstance(other, (bool, np.bool_)):
            other = Mask((1,) * len(self.shape), None, np.full((1,) * len(self.shape), other))
        if not isinstance(other, Mask):
            return NotImplemented
        points = function(self.array(), other.array())
        return Mask(joint_shape([self.shape, other.shape]), None, points)

    def __and__(self, other: Any) -> Any:
        if isinstance(other, Mask) and self.terms is not None and other.terms is not None:
            shape = joint_shape([self.shape, other.shape])
            terms = [Term(t.index.spread(shape), t.op) for t in (*self.terms, *other.terms)]
            return Mask(shape, tuple(terms))
        return self._join(other, np.logical_and)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return self._join(other, np.logical_or)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Any:
        return self._join(other, np.logical_xor)

    def __invert__(self) -> Mask:
        if self.terms is not None and len(self.terms) == 1:
            term = self.terms[0]
            return Mask(self.shape, (Term(term.index, INVERSE[term.op]),))
        return Mask(self.shape, None, np.logical_not(self.array()))

    def __bool__(self) -> bool:
        """`a and b` asks for the truth of a; the documentation uses it for `a & b`.

        The comparison that follows is then joined with a (`compared`); anything else that asks is
        refused.
        """
        points = self.array()
        if points.all() or not points.any():
            return bool(points.any())
        if active() and _asked_by_and(sys._getframe(1)):
            state().joined = self
            return True
        raise NkiValidationError(
            "Python's `or`, `not` and `if` can't be used on a mask, which differs from element to "
            "element; use |, ~ and nl.where",
            code="branch-on-index",
        )

    def over(self, shape: tuple[int, ...]) -> Mask:
        """The mask of a tile of `shape`.

        A mask of fewer dimensions is matched from the last, as NumPy does; sizes of 1 repeat, and
        a longer axis of the mask is cut (a tile may be smaller than the grid that is compared).
        """
        if len(self.shape) > len(shape):
            raise NkiValidationError(
                f"a mask of shape {self.shape} on a tile of shape {shape}, which has fewer "
                "dimensions",
                code="mask-shape",
                numbers={"got": self.shape, "allowed": shape},
            )
        more = len(shape) - len(self.shape)
        padded = (1,) * more + self.shape
        if any(n not in (1, m) and m > n for n, m in zip(padded, shape)):
            raise NkiValidationError(
                f"a mask of shape {self.shape} on a tile of shape {shape}",
                code="mask-shape",
                numbers={"got": self.shape, "allowed": shape},
            )
        if self.terms is not None:
            return Mask(shape, tuple(Term(t.index.spread(shape), t.op) for t in self.terms))
        points = self.array()
        points = points.reshape((1,) * more + points.shape)
        cut = tuple(slice(None) if n == 1 else slice(0, m) for n, m in zip(points.shape, shape))
        return Mask(shape, None, points[cut])

    def box(self) -> Box | None:
        """The mask as a box of its shape, possibly empty; None if it isn't one."""
        if self.terms is None:
            return _full_hull(self.array(), self.shape)
        box = [(0, n) for n in self.shape]
        for term in self.terms:
            axes = term.axes()
            if len(axes) > 1:
                return None
            held = np.flatnonzero(np.atleast_1d(term.holds().ravel()))
            if not held.size:
                return tuple((0, 0) for _ in box)
            if not axes:
                continue
            if held[-1] - held[0] + 1 != held.size:
                return None
            low, high = box[axes[0]]
            box[axes[0]] = (max(low, int(held[0])), min(high, int(held[-1]) + 1))
        if any(lo >= hi for lo, hi in box):
            return tuple((0, 0) for _ in box)
        return tuple(box)

    def of_axes(self, roots: frozenset[Any]) -> Mask | None:
        """Its bounds of the contraction (axis 0), and of other axes made from some of `roots`.

        None if it isn't a conjunction of comparisons.
        """
        if self.terms is None:
            return None
        kept = tuple(t for t in self.terms if t.axes() in ([], [0]) or t.index.roots & roots)
        return Mask(self.shape, kept)

    def boxes(self) -> list[Box]:
        """Boxes that cover the mask exactly and don't overlap, in order of their first point."""
        one = self.box()
        if one is not None:
            return [] if one and one[0] == (0, 0) else [one]
        return _cover(np.broadcast_to(self.array(), self.shape))

    def hull(self) -> Box:
        """The smallest box around the mask."""
        one = self.box()
        if one is not None:
            return one
        return _hull(np.broadcast_to(self.array(), self.shape))

    def __repr__(self) -> str:
        return f"<mask {self.shape}>"


def compared(mask: Mask) -> Mask:
    """A comparison just made: joined with the mask before an `and`."""
    if not active():
        return mask
    now = state()
    before, now.joined = now.joined, None
    return mask if before is None else before & mask


def _asked_by_and(frame: FrameType) -> bool:
    """Whether a frame is evaluating `a and b` as a value, not branching."""
    code, at = frame.f_code.co_code, frame.f_lasti
    name = dis.opname[code[at]]
    if name == "JUMP_IF_FALSE_OR_POP":  # CPython 3.11
        return True
    return name in ("POP_JUMP_IF_FALSE", "TO_BOOL") and dis.opname[code[at - 2]] == "COPY"


def _hull(points: np.ndarray) -> Box:
    hull = []
    for axis in range(points.ndim):
        others = tuple(d for d in range(points.ndim) if d != axis)
        along = np.flatnonzero(points.any(axis=others))
        hull.append((int(along[0]), int(along[-1]) + 1) if along.size else (0, 0))
    return tuple(hull)


def _full_hull(points: np.ndarray, shape: tuple[int, ...]) -> Box | None:
    """The box that listed points fill, None if they don't."""
    hull = _hull(points)
    if not points[tuple(slice(lo, hi) for lo, hi in hull)].all():
        return None
    wide = zip(points.shape, shape, hull)
    return tuple((0, m) if n == 1 and b == (0, 1) else b for n, m, b in wide)


def joint_shape(shapes: Sequence[tuple[int, ...]], what: str = "masks") -> tuple[int, ...]:
    """The shape that masks or index expressions broadcast to."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise NkiValidationError(
            f"{what} of shapes {', '.join(map(str, shapes))} don't broadcast: sizes of each "
            "dimension must be equal, or one of them 1",
            code="shape-broadcast",
        ) from None


def _cover(points: np.ndarray) -> list[Box]:
    """Runs of equal slices along the first axis, each covered by itself."""
    if points.ndim == 1:
        edges = np.flatnonzero(np.diff(np.concatenate(([0], points.astype(np.int8), [0]))))
        return [((int(a), int(b)),) for a, b in zip(edges[::2], edges[1::2])]
    found: list[Box] = []
    first = 0
    for n in range(1, len(points) + 1):
        if n == len(points) or not np.array_equal(points[n], points[first]):
            found += [((first, n), *rest) for rest in _cover(points[first])]
            first = n
    return found
