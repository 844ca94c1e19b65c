"""What was asked of simulated time, and whether it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from bench.accuracy.judge import Point, by_family, cores, errors, percent, variants
from bench.accuracy.rows import FIRST, PUBLIC, Row

# Medians over several families are of their rows together.
_MEDIANS: Final = MappingProxyType(
    {("accelopt", "kda-seed"): 25.0, ("autocomp",): 15.0, ("kda",): 12.0, ("autotune",): 15.0}
)
_MOST_FITTED: Final = 12


@dataclass(frozen=True)
class Bar:
    """A figure, what was asked of it, and whether it holds; None where it couldn't be found."""

    what: str
    asked: str
    found: str
    holds: bool | None


def bars(
    rows: Sequence[Row], points: Sequence[Point], figures: int, left_out: Mapping[str, Any]
) -> list[Bar]:
    """All of them.

    Args:
        rows: those that should have run.
        points: those that did.
        figures: how many were fitted.
        left_out: what `leave_out.measure` found, or empty.
    """
    first = [p for p in points if p.row.set == FIRST]
    public = [p for p in points if p.row.set == PUBLIC]
    found = []
    if first:
        e = errors(first)
        found += [
            _most("first set, median error", e.median, 6),
            _most("first set, 90th percentile", e.p90, 20),
            Bar("first set, rank correlation", ">= 0.994", f"{e.rank:.4f}", _least(e.rank, 0.994)),
        ]
    asked = [row for row in rows if row.set == PUBLIC and row.judged]
    if public:
        ran = f"{len(public)} of {len(asked)}"
        found.append(Bar("public set, rows that run", "all", ran, len(public) == len(asked)))
        found.append(_most("public set, median error", errors(public).median, 5))
        found.append(_most("public set, worst row", errors(public).worst, 80))
    families = by_family(public)
    for names, most in _MEDIANS.items():
        members = [p for name in names for p in families.get(name, ())]
        if members:
            found.append(
                _most(f"{' and '.join(names)}, median error", errors(members).median, most)
            )
    found += _variants(public) + _covered(points)
    pairs = [abs(pair.error) for pair in cores(points)]
    if pairs:
        found.append(_most("gain by a second core, median error", percent(median(pairs)), 8))
    found.append(Bar("figures fitted", f"<= {_MOST_FITTED}", str(figures), figures <= _MOST_FITTED))
    return [*_left_out(left_out), *found]


def _left_out(left_out: Mapping[str, Any]) -> list[Bar]:
    whats = {"median": ("median error of families left out", 9)}
    whats["p90"] = ("90th percentile of families left out", 25)
    if not left_out:
        return [Bar(what, f"<= {most} %", "not measured", None) for what, most in whats.values()]
    found = left_out["family"]
    return [_most(what, found[key], most) for key, (what, most) in whats.items()]


def _most(what: str, found: float, most: float) -> Bar:
    return Bar(what, f"<= {most:g} %", f"{found:.1f} %", found <= most)


def _least(found: float, least: float) -> bool:
    return not isnan(found) and found >= least


def _variants(public: Sequence[Point]) -> list[Bar]:
    of = variants(public)
    pairs, ordered = sum(v.pairs for v in of), sum(v.ordered for v in of)
    if not pairs:
        return []
    picked, share = sum(v.picked for v in of), ordered / pairs
    asked = len(of) - 1
    return [
        Bar(
            "variants, pairs in order",
            ">= 88 %",
            f"{ordered} of {pairs}, {share:.0%}",
            share >= 0.88,
        ),
        Bar("variants, best picked", f">= {asked} of {len(of)}", f"{picked}", picked >= asked),
    ]


def _covered(points: Sequence[Point]) -> list[Bar]:
    if not points:
        return []
    share = errors(points).covered
    return [Bar("measured inside the band", "75 to 90 %", f"{share:.1%}", 0.75 <= share <= 0.9)]
