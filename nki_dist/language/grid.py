"""The grid markers of Beta 1 launches: `kernel[nl.nc(2)]`, `kernel[nl.spmd_dim(nl.nc(2), 4)]`.

They only say what was written; `launcher.grid` turns them into cores and program instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_dist.errors import LaunchError


@dataclass(frozen=True)
class Nc:
    """`nl.nc(n)`: an axis, or part of one, that counts physical cores."""

    n: int

    def __mul__(self, other: int) -> SpmdDim:
        return SpmdDim((self, other))

    def __rmul__(self, other: int) -> SpmdDim:
        return SpmdDim((other, self))


@dataclass(frozen=True)
class SpmdDim:
    """`nl.spmd_dim(...)`: one grid axis made of parts, outermost first."""

    parts: tuple[Any, ...]


def nc(n: int) -> Nc:
    """An axis of a launch grid, or part of one, whose programs run on `n` physical cores.

    Raises:
        LaunchError: `n` is not a positive int.
    """
    if isinstance(n, bool) or not hasattr(n, "__index__") or n.__index__() < 1:
        message = f"nl.nc({n!r}); allowed: a positive int"
        raise LaunchError(message, code="grid-form", numbers={"got": n})
    return Nc(n.__index__())


def spmd_dim(*parts: Any) -> SpmdDim:
    """One axis of a grid from parts, some of them `nl.nc`: its size is their product."""
    return SpmdDim(parts)
