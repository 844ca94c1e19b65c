"""Measured rows that never were, with chosen errors."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp

from bench.accuracy.judge import Point
from bench.accuracy.rows import FIRST, PUBLIC, Result, Row
from nki_dist.timing.band import Shares


def row(name: str, us: float = 100.0, flags: str = "", kind: str = "") -> Row:
    """A row of the public set if its id has a slash."""
    kind = kind or (PUBLIC if "/" in name else FIRST)
    return Row(name, kind, us, frozenset(flags), "trn2", 1)


def result(name: str, us: float, **fields: object) -> Result:
    return Result(name, us, critical={"tensor": us}, **fields)


def point(
    name: str,
    error: float = 0.0,
    us: float = 100.0,
    bounds: Mapping[str, float] | None = None,
    assumed: float = 0.0,
    flags: str = "",
    free: float = 0.0,
) -> Point:
    """A row measured at `us` and simulated `exp(error)` times as long."""
    return Point(
        row(name, us, flags), us * exp(error), Shares(bounds or {"tensor": 1.0}, assumed, free)
    )
