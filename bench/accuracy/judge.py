"""Errors of simulated times: of a family, and among the variants of a problem.

An error is the logarithm of simulated over measured time, so that half and double are equally far
off; shown as percent, 100 % is a factor of 2. Medians and quantiles are of absolute errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, expm1, log, nan
from typing import Final, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from bench.accuracy.rows import ONE_CORE, TWO_CORES, Result, Row
from nki_dist.timing.band import Shares, shares, width

CLOSE: Final = log(1.05)  # variants measured no further apart count as equally fast
_TWO: Final = 2.0  # physical cores of one kernel: the factor where no row says a better one


@dataclass(frozen=True)
class Point:
    """A measured launch that ran, with its simulated time made comparable.

    Attributes:
        us: simulated time on the device, divided by the factor of its source.
        of: what the time was spent on.
    """

    row: Row
    us: float
    of: Shares

    @property
    def error(self) -> float:
        return log(self.us / self.row.measured_us)

    @property
    def covered(self) -> bool:
        """Whether the measured time is within the band."""
        return abs(self.error) <= width(self.of)


def points(rows: Iterable[Row], results: Mapping[str, Result]) -> list[Point]:
    """The judged rows that have a simulated time.

    Of a kernel that two physical cores worked on, while the model takes one core for it, only
    ratios are good: one factor, the median of simulated over measured, is taken off all of them.
    """
    ran = [
        (row, result, 0.5 if ONE_CORE in row.flags else 1.0)
        for row in rows
        if row.judged and (result := results.get(row.id)) and result.device_us
    ]
    ratios = [
        result.device_us / row.measured_us / cores
        for row, result, cores in ran
        if TWO_CORES in row.flags and row.problem.startswith("kda/")
    ]
    factor = float(np.median(ratios)) if ratios else _TWO
    return [
        Point(
            row,
            result.device_us / (factor * cores if TWO_CORES in row.flags else 1.0),
            shares(result.critical, result.overhead_us, result.assumed_us, result.beta1),
        )
        for row, result, cores in ran
    ]


@dataclass(frozen=True)
class Errors:
    """Of a set of launches: percent, but for the rank correlation and the share in the band."""

    count: int
    median: float
    p90: float
    worst: float
    bias: float
    rank: float
    covered: float


def percent(error: float) -> float:
    return 100 * expm1(error)


def errors(of: Sequence[Point]) -> Errors:
    """Of at least one point; the rank is nan where there is nothing to rank."""
    signed = np.array([p.error for p in of])
    off = abs(signed)
    return Errors(
        len(of),
        percent(float(np.median(off))),
        percent(float(np.quantile(off, 0.9))),
        percent(float(off.max())),
        percent(float(np.median(signed))),
        rank([p.row.measured_us for p in of], [p.us for p in of]),
        float(np.mean([p.covered for p in of])),
    )


def rank(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation; nan for fewer than three or constant values."""
    if len(a) < 3 or len(set(a)) == 1 or len(set(b)) == 1:
        return nan
    return float(spearmanr(a, b).statistic)


def by_family(of: Iterable[Point]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for p in of:
        found.setdefault(p.row.family, []).append(p)
    return found


@dataclass(frozen=True)
class Variants:
    """Of one problem's variants.

    Attributes:
        pairs: measured further apart than CLOSE; `ordered` are those in the same order, which
            equal simulated times aren't in.
        picked: whether the one simulated fastest is measured about the fastest.
        median: error once the problem's median error is taken off, in percent.
    """

    problem: str
    count: int
    pairs: int
    ordered: int
    picked: bool
    rank: float
    median: float


class Cores(NamedTuple):
    """One kernel of one shape, measured on one core and on two that share the work.

    Attributes:
        error: logarithm of the simulated over the measured gain by the second core.
    """

    one: Point
    two: Point

    @property
    def error(self) -> float:
        return self.two.error - self.one.error


def cores(of: Iterable[Point]) -> list[Cores]:
    """The launches of the first set that differ in the number of cores only."""
    by_config: dict[tuple[str, str], dict[int, Point]] = {}
    for p in of:
        if p.row.config:
            by_config.setdefault((p.row.family, repr(sorted(p.row.config.items()))), {})[
                p.row.lnc
            ] = p
    return [Cores(found[1], found[2]) for found in by_config.values() if {1, 2} <= found.keys()]


def variants(of: Iterable[Point]) -> list[Variants]:
    """Of every problem with at least two variants."""
    problems: dict[str, list[Point]] = {}
    for p in of:
        if p.row.problem:
            problems.setdefault(p.row.problem, []).append(p)
    return [_variants(name, members) for name, members in problems.items() if len(members) > 1]


def _variants(problem: str, of: list[Point]) -> Variants:
    pairs = [
        (a, b)
        for a, b in combinations(of, 2)
        if abs(log(a.row.measured_us / b.row.measured_us)) > CLOSE
    ]
    ordered = sum(log(a.us / b.us) * (a.row.measured_us - b.row.measured_us) > 0 for a, b in pairs)
    chosen = min(of, key=lambda p: p.us).row.measured_us
    best = min(p.row.measured_us for p in of)
    signed = np.array([p.error for p in of])
    return Variants(
        problem,
        len(of),
        len(pairs),
        ordered,
        chosen <= best * exp(CLOSE),
        rank([p.row.measured_us for p in of], [p.us for p in of]),
        percent(float(np.median(abs(signed - np.median(signed))))),
    )
