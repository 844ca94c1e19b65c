"""Fitting the figures that differ between machines to times that were measured on one.

The logarithms of four factors are fitted to the logarithms of the times, by least squares (each
step solves the linearised problem), so that a kernel of 20 us counts as much as one of 20 ms.
Factors are drawn to 1 as if each were known within a factor of two beforehand: a figure that no
measured kernel depends on stays what it was. Nothing else is fitted; costs of instructions are the
same on every machine.

How well it predicts is told by leaving rows out. It is computed from the last linearised problem,
where it is exact, instead of by as many fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

SPREAD: Final = np.log(2.0)  # of a factor, before anything is measured
NOISE: Final = 0.1  # of a time, as a share: what the rest of the model gets wrong
LIMIT: Final = np.log(4.0)  # farther away, something else is wrong
_STEP: Final = 0.05  # for slopes: estimates have small jumps
_ROUNDS: Final = 8
_ENOUGH: Final = 0.005  # change of a factor that ends the fit

Estimates: TypeAlias = "Callable[[np.ndarray], np.ndarray]"


@dataclass(frozen=True)
class Fit:
    """A fit of n factors to m rows.

    Attributes:
        factors: (n,).
        determined: (n,) shares of what was open about each factor that the rows decided, 0 to 1.
        before, after: (m,) estimated over measured, with all factors 1 and with these.
        left_out: (m,) the same, for each row with factors fitted to the others.
    """

    factors: np.ndarray
    determined: np.ndarray
    before: np.ndarray
    after: np.ndarray
    left_out: np.ndarray


def fit(estimates: Estimates, measured: Sequence[float], count: int) -> Fit:
    """Fit `count` factors.

    Args:
        estimates: from the factors, (count,), to the time of every row, (m,).
        measured: the times, (m,), in the same unit.
    """
    target = np.log(np.asarray(measured, float))
    weight = (NOISE / SPREAD) ** 2 * np.eye(count)

    def residuals(x: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.log(estimates(np.exp(x))) - target
        return found

    def loss(x: np.ndarray, r: np.ndarray) -> float:
        return float(r @ r + x @ weight @ x)

    x = np.zeros(count)
    r = first = residuals(x)
    slopes = _slopes(residuals, x, r)
    for _ in range(_ROUNDS):
        step = -np.linalg.solve(slopes.T @ slopes + weight, slopes.T @ r + weight @ x)
        while True:
            tried = np.clip(x + step, -LIMIT, LIMIT)
            found = residuals(tried)
            if loss(tried, found) <= loss(x, r):
                break
            step = step / 2
            if np.abs(step).max() < _ENOUGH:
                tried, found = x, r
                break
        moved = float(np.abs(tried - x).max())
        x, r = tried, found
        if moved < _ENOUGH:
            break
        slopes = _slopes(residuals, x, r)
    information = slopes.T @ slopes
    inverse = np.linalg.inv(information + weight)
    leverage = np.einsum("ij,jk,ik->i", slopes, inverse, slopes)
    return Fit(
        factors=np.exp(x),
        determined=1 - np.diag(inverse) * np.diag(weight),
        before=np.exp(first),
        after=np.exp(r),
        left_out=np.exp(r / (1 - leverage)),
    )


def _slopes(residuals: Estimates, x: np.ndarray, r: np.ndarray) -> np.ndarray:
    """(rows, factors): how each residual changes with each factor's logarithm."""
    columns = []
    for n in range(len(x)):
        step = -_STEP if x[n] + _STEP > LIMIT else _STEP
        moved = x.copy()
        moved[n] += step
        columns.append((residuals(moved) - r) / step)
    return np.stack(columns, axis=1)
