"""Masks of Beta 1: comparisons of index expressions, known when the kernel is traced.

Each comparison bounds one axis and `&` joins them, so a mask shrinks access patterns to a box.
What isn't one is refused where it is used as a mask; `affine_select` takes any comparison.

Follows: "Supported Masking in NKI" of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from nki_dist.compat.beta1.state import active, state
from nki_dist.errors import NkiValidationError

Box = tuple[tuple[int, int], ...]  # of each axis, where it begins and ends


def nothing(shape: Sequence[int]) -> Box:
    """The box of a mask that leaves nothing."""
    return tuple((0, 0) for _ in shape)


@dataclass(frozen=True)
class Term:
    """`index op 0`."""

    index: Any
    op: str

    def holds(self) -> np.ndarray:
        """Where it does: booleans that broadcast to the shape of its index."""
        return getattr(np, self.op)(self.index.array(), 0)

    def axes(self) -> list[int]:
        """Axes it depends on."""
        return [d for d, s in enumerate(self.index.steps) if s and self.index.shape[d] > 1]


class Mask:
    """The points of `shape` where all of some comparisons hold."""

    __slots__ = ("shape", "terms")

    def __init__(self, shape: tuple[int, ...], terms: tuple[Term, ...]) -> None:
        self.shape = shape
        self.terms = terms

    def truth(self) -> bool | None:
        """Whether it holds; None if it does in some places only."""
        points = np.ones((1,) * len(self.shape), bool)
        for term in self.terms:
            points = points & term.holds()
        return bool(points.all()) if points.all() or not points.any() else None

    def __and__(self, other: Any) -> Any:
        if isinstance(other, (bool, np.bool_)):
            other = Mask(self.shape, () if other else (Term(self.terms[0].index * 0, "not_equal"),))
        if not isinstance(other, Mask):
            return NotImplemented
        shape = joint_shape([self.shape, other.shape])
        terms = [Term(t.index.spread(shape), t.op) for t in (*self.terms, *other.terms)]
        return Mask(shape, tuple(terms))

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        """One of both, where the other holds everywhere or nowhere."""
        for one, two in ((self, other), (other, self)):
            truth = one.truth() if isinstance(one, Mask) else bool(one)
            if truth is not None:
                return one if truth else two
        return self._refused(other)

    __ror__ = __or__

    def _refused(self, *other: Any) -> NoReturn:
        raise NkiValidationError(
            "masks are comparisons joined by &, each of one index; what |, ^ and ~ leave is no "
            "rectangle: work on its parts, each with a mask of its own, or choose by nl.where",
            code="mask-shape",
        )

    __xor__ = __rxor__ = __invert__ = _refused

    def __bool__(self) -> bool:
        """`a and b` asks for the truth of a; the documentation uses it for `a & b`.

        The comparison that follows is then joined with a (`compared`); anything else that asks is
        refused.
        """
        truth = self.truth()
        if truth is not None:
            return truth
        if active() and _asked_by_and(sys._getframe(1)):
            state().joined = self
            return True
        raise NkiValidationError(
            "Python's `or`, `not` and `if` can't be used on a mask, which differs from element to "
            "element; use & and nl.where",
            code="branch-on-index",
        )

    def over(self, shape: tuple[int, ...]) -> Mask:
        """The mask of a tile of `shape`.

        A mask of fewer dimensions is matched from the last, as NumPy does; sizes of 1 repeat, and
        a longer axis of the mask is cut (a tile may be smaller than the grid that is compared).
        """
        padded = (1,) * (len(shape) - len(self.shape)) + self.shape
        fewer = len(self.shape) > len(shape)
        if fewer or any(n not in (1, m) and m > n for n, m in zip(padded, shape)):
            raise NkiValidationError(
                f"a mask of shape {self.shape} on a tile of shape {shape}"
                f"{', which has fewer dimensions' * fewer}",
                code="mask-shape",
                numbers={"got": self.shape, "allowed": shape},
            )
        return Mask(shape, tuple(Term(t.index.spread(shape), t.op) for t in self.terms))

    def box(self) -> Box:
        """The mask as a box of its shape, possibly empty.

        Raises:
            NkiValidationError: it isn't one.
        """
        box = [(0, n) for n in self.shape]
        for term in self.terms:
            points = term.holds()
            if not points.any():
                return nothing(self.shape)
            if points.all():
                continue
            axes, held = term.axes(), np.flatnonzero(points)
            if len(axes) > 1 or held[-1] - held[0] + 1 != held.size:
                raise NkiValidationError(
                    f"a mask of shape {self.shape} that isn't a box: a comparison bounds "
                    f"{'more than one axis' if len(axes) > 1 else 'no range of an axis'}; allowed: "
                    "bounds of each index, such as (i_p < 100) & (i_f >= 4). Choose other elements "
                    "by nisa.affine_select or nl.where",
                    code="mask-shape",
                    numbers={"shape": self.shape},
                )
            low, high = box[axes[0]]
            box[axes[0]] = (max(low, int(held[0])), min(high, int(held[-1]) + 1))
        return nothing(self.shape) if any(lo >= hi for lo, hi in box) else tuple(box)

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
