"""Working out the widths of the band in `nki_dist/timing/band.py` from the errors of measured rows.

The widths of a kernel and of what is around it are quantiles of errors, by regression of quantiles
on their shares of the time, drawn towards the quantile of all where few rows speak for it. Widths
fitted to a family aren't used to judge that family: a factor on all of them is chosen so that
families which took no part are covered as often as wanted. In the regression, families count by the
root of their size: the many rows of one kernel aren't as many witnesses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import linprog

from bench.accuracy.judge import Point, by_family
from nki_dist.timing.band import AROUND, COLLECTIVES, KERNEL, width

LEVEL: Final = 0.8  # of the kernels are meant to be inside
# Of rows that took no part, halves drawn at random, some 4 % fewer are covered than of those that
# did, and all measured rows were looked at while the model was made. So more than LEVEL of them.
AIM: Final = LEVEL + 0.07
# No row has a collective; what `python -m bench.collectives_accuracy` leaves out is this far off.
COLLECTIVES_WIDTH: Final = 0.35
_WITNESSES: Final = 4.0  # covered rows it takes to narrow a bound below the width of all
_APART: Final = 3.0  # a bound's width is at most so many times that of all, or so much less
_LEAST: Final = 0.02  # narrower than this, not even a measurement repeats


@dataclass(frozen=True)
class Widths:
    """As of `nki_dist.timing.band`: by bound, added where all is assumed, and for Beta 1."""

    by_bound: Mapping[str, float]
    assumed: float
    freedom: float

    def scaled(self, factor: float) -> Widths:
        scaled = {bound: factor * w for bound, w in self.by_bound.items()}
        return Widths(scaled, factor * self.assumed, factor * self.freedom)

    def of(self, p: Point) -> float:
        """The width of a point's band."""
        return width(p.of, self.by_bound, self.assumed, self.freedom)


def fitted(points: Sequence[Point]) -> Widths:
    """The table of widths, rounded as it is stored."""
    scaled = _regression(points).scaled(_factor(points))
    rounded = {bound: round(max(w, _LEAST), 3) for bound, w in scaled.by_bound.items()}
    # No measured row has a collective, so that is taken for as unknown as the least known.
    rounded[COLLECTIVES] = max(COLLECTIVES_WIDTH, *rounded.values())
    return Widths(rounded, round(scaled.assumed, 3), round(scaled.freedom, 3))


def left_out(points: Sequence[Point]) -> dict[str, float]:
    """By family, the share within bands that were fitted without it, for the page."""
    factor = _factor(points)
    covered: dict[str, float] = {}
    for name, members in by_family(points).items():
        widths = _without(points, name).scaled(factor)
        covered[name] = float(np.mean([abs(p.error) <= widths.of(p) for p in members]))
    return covered


def covered(points: Sequence[Point]) -> tuple[int, ...]:
    """As of `COVERED` in `nki_dist.timing.band`."""
    unseen = left_out(points)
    share = sum(unseen[p.row.family] for p in points) / len(points)
    return len(points), *(
        round(100 * s) for s in (share, min(unseen.values()), max(unseen.values()))
    )


def _factor(points: Sequence[Point]) -> float:
    """On widths that others gave a family, so that it is covered as often as wanted."""
    scores = []
    for name, members in by_family(points).items():
        widths = _without(points, name)
        scores += [abs(p.error) / widths.of(p) for p in members]
    return _quantile(scores, [1.0] * len(scores))


def _without(points: Sequence[Point], family: str) -> Widths:
    """Widths fitted to the other families; to all points where there is no other."""
    return _regression([p for p in points if p.row.family != family] or points)


def _quantile(values: Sequence[float], weights: Sequence[float], level: float = AIM) -> float:
    """The least value that a share `level` of the weight doesn't exceed."""
    order = np.argsort(values)
    total = np.cumsum(np.asarray(weights)[order])
    at = int(np.searchsorted(total, level * total[-1] - 1e-12))
    return float(np.asarray(values)[order][min(at, len(values) - 1)])


def _regression(points: Sequence[Point]) -> Widths:
    """The widths whose sum over a kernel's shares is the AIM quantile of its error.

    Minimises the quantile loss, plus for each width its distance from the quantile of all at a
    price that `_WITNESSES` covered rows outweigh; a linear program in the widths, their deviations
    from that quantile (upwards and downwards) and those of the rows.
    """
    sizes = {name: len(members) for name, members in by_family(points).items()}
    weights = np.array([sizes[p.row.family] ** -0.5 for p in points])
    weights *= len(points) / weights.sum()
    off = np.array([abs(p.error) for p in points])
    common = max(_quantile(list(off), list(weights)), _LEAST)
    shares = np.array(
        [
            [1 - around, around, p.of.assumed, p.of.free]
            for p in points
            for around in [p.of.bounds.get(AROUND, 0.0)]
        ]
    )
    n, k = shares.shape
    rows, columns = np.eye(n), np.eye(k)
    equations = np.block(
        [
            [shares, np.zeros((n, 2 * k)), rows, -rows],
            [columns, -columns, columns, np.zeros((k, 2 * n))],
        ]
    )
    price = np.concatenate(
        [
            np.zeros(k),
            np.full(2 * k, _WITNESSES * (1 - AIM)),
            AIM * weights,
            (1 - AIM) * weights,
        ]
    )
    # What a kernel of Beta 1 adds is for rows to say, and may be nothing.
    near = [(common / _APART, common * _APART)] * (k - 1) + [(0.0, common * _APART)]
    drawn = np.array([common] * (k - 1) + [0.0])
    found = linprog(
        price,
        A_eq=equations,
        b_eq=np.concatenate([off, drawn]),
        bounds=near + [(0.0, None)] * (2 * k + 2 * n),
        method="highs",
    )
    if not found.success:
        raise RuntimeError(f"no widths: {found.message}")
    return Widths(dict(zip((KERNEL, AROUND), found.x[:2].tolist())), *map(float, found.x[2:k]))
