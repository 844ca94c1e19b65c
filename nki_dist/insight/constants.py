"""Numbers in a line that could be others: the number with which a result is as expected.

A number is looked for by the secant method on the launch itself. One that kernels have (a size of a
tensor, its root, a small number, or the inverse of one) supposes less than any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from math import exp, isfinite, sqrt
from typing import Final

import numpy as np

from nki_dist.insight.changes import ADDED, OTHER, PLAIN, Change, Path, entries, entry, with_entry
from nki_dist.insight.wanted import Wanted
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Instruction

TURNS: Final = 14
# By how much a number that was fitted to one result may be off from a known one, as a part of what
# the result may be off.
CLOSE: Final = 0.7
SMALL: Final = 16  # integers up to this are known ones


def constants(i: Instruction) -> Iterator[Path]:
    """Numbers among the arguments that an instruction computes with."""
    for path, value in entries(i):
        if isinstance(value, float) and isfinite(value):
            yield path


def fitted(
    i: Instruction,
    path: Path,
    wanted: Wanted,
    result: Callable[[Change], np.ndarray | None],
    dims: Collection[int],
) -> Iterator[Change]:
    """The change of a constant with which the element is as expected, if there is one."""
    want = wanted.wanted_number()
    start = float(entry(i, path))
    parameter = INSTRUCTIONS[i.opcode].signature.parameters[path[0]]
    missing = parameter.default == start and len(path) == 1

    def change(value: float, supposes: int) -> Change:
        what = f"{path[0]}={value:.6g} in place of {start:.6g}"
        return Change(what, supposes, lambda i, n: with_entry(i, path, value))

    def off(value: float) -> float | None:
        picked = result(change(value, ADDED))
        return None if picked is None else wanted.number(picked) - want

    if not isfinite(want):
        return
    for made, near_start in _ways(start):
        found = _root(lambda t, made=made: off(made(t)), near_start, abs(want))  # type: ignore[misc]
        if found is not None:
            value = made(found)
            near = _known(value, dims, CLOSE * wanted.rounding)
            plain = OTHER if missing else PLAIN
            yield change(value if near is None else near, ADDED if near is None else plain)
            return


def _ways(start: float) -> list[tuple[Callable[[float], float], float]]:
    """How a number is varied, and by how much at first: as a factor, because results are often
    proportional to a power of it, or as a term."""
    if not start:
        return [(lambda t: t, 1e-3), (lambda t: t, 1.0)]
    return [
        (lambda t: start * exp(t), 0.1),
        (lambda t: -start * exp(t), 0.1),
        (lambda t: start + t, 0.1 * abs(start)),
    ]


def _root(off: Callable[[float], float | None], b: float, size: float) -> float | None:
    """Where a function is 0, from 0 and b on, by the secant method; None if that leads nowhere."""
    a, fa, fb = 0.0, off(0.0), off(b)
    widest = 20 * abs(b)  # of a step, so that a flat place doesn't lead far away
    for _ in range(TURNS):
        if fa is None or fb is None or not isfinite(fa) or not isfinite(fb):
            return None
        if abs(fb) <= 1e-6 * size or fa == fb:
            break
        step = max(-widest, min(widest, -fb * (b - a) / (fb - fa)))
        a, fa, b = b, fb, b + step
        fb = off(b)
    return b if fb is not None and abs(fb) <= 1e-4 * size else None


def _known(value: float, dims: Collection[int], close: float) -> float | None:
    """The number that kernels have next to this one."""
    if abs(value) < 1e-12:
        return 0.0
    whole = {*dims, *range(1, SMALL + 1)} - {0}
    for n in sorted(whole):
        for known in (n, 1 / n, sqrt(n), 1 / sqrt(n)):
            if abs(abs(value) - known) <= close * known:
                return known if value > 0 else -known
    return None


__all__ = ["constants", "fitted"]
