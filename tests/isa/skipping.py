"""Transfers that skip rows: what their tests share, and a reference that looks at each element."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa

SKIP = nisa.oob_mode.skip
Pattern = list[list[int]]


def made(kernel: Callable[..., Any], platform: str = "trn2") -> Any:
    """The kernel as a function of arrays; compiled once."""
    return nki.simulate(nki.jit(kernel, platform_target=platform))


def at(index: int) -> np.ndarray:
    return np.array([[index]], np.int32)


def addresses(pattern: Pattern, offset: int = 0) -> np.ndarray:
    """Address of every element, in order."""
    every = product(*(range(n) for _, n in pattern))
    return np.array([offset + sum(k * s for k, (s, _) in zip(ks, pattern)) for ks in every])


def rows(*sides: tuple[np.ndarray, int]) -> list[slice]:
    """The elements cut into rows; sides are (addresses, elements of the last dimension)."""
    cuts, count = [0], len(sides[0][0])
    for n in range(1, count):
        if any(n % last == 0 or a[n] != a[n - 1] + 1 for a, last in sides):
            cuts.append(n)
    return [slice(low, high) for low, high in zip(cuts, [*cuts[1:], count])]
