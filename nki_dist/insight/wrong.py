"""How a launch differs from what was expected, as a page shows it: facts, no guesses.

A line is called the first wrong one where there is evidence: all elements that were looked at and
are off came through it, and no right one did. Which are looked at is a choice: the one that is off
most, the first and the last, and right ones in rows, or columns, that are right altogether. A line
that made the first number that isn't finite, or read what nobody had written, is told as that: the
mistake may be another line's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nki_dist.insight.differences import facts
from nki_dist.insight.expected import Checked, first_off, only_rounding, rounding_of, trusted
from nki_dist.insight.log import Log
from nki_dist.insight.origin import Walk, first_to_look_at
from nki_dist.insight.regions import Region
from nki_dist.insight.steps import Step, index_in
from nki_dist.report import text

_LOOKED_AT: Final = 2, 3  # wrong and right elements whose ways are compared
_LIMIT: Final = 400  # steps of each


@dataclass
class Wrong:
    """What a page says of a result that isn't as expected.

    Attributes:
        checked: the tensor, or what a line wrote; None if all is as expected.
        line: that stands out, or ""; why: for which reason; first: it is the first wrong one.
        others: lines that all that are off came through, and not all right ones.
        steps: of the way of an element that is off, from the result back.
        ways: elements with their numbers, whether they are right, and what they were made of.
    """

    name: str
    said: list[str]
    checked: Checked | None = None
    line: str = ""
    why: str = ""
    first: bool = False
    others: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    ways: list[tuple[str, bool, list[str]]] = field(default_factory=list)
    what: str = ""
    complete: bool = True


def told(log: Log, found: Sequence[Checked], rank: int) -> Wrong:
    """What a page says of the first tensor, in the order of the launch, that isn't as expected."""
    said = [str(c.told(log)) for c in found]
    if (c := first_off(found)) is None:
        hidden = list(filter(None, (only_rounding(log.launched, one) for one in found)))
        why = "Nothing is off by more than rounding." if hidden else "Nothing is off."
        return Wrong("as expected", said + hidden or ["nothing was compared"], why=why)
    made = Wrong(c.name, said[:-1] if len(found) > 1 else [], c)
    shape = c.region.shape
    got, wanted, off_here = (np.reshape(a, shape) for a in (c.got, c.wanted, c.wrong))
    made.said += facts(got, wanted, off_here, rounding_of(log.launched))
    worst = c.worst()
    known = trusted(found)
    walk = _walk(log, c.region, worst, c.departs + 1, known)
    made.steps, made.complete = walk.steps, walk.complete
    made.what = f"{_element(c, worst)} of rank {rank}"
    bad = _ways(log, c, np.flatnonzero(c.wrong), _LOOKED_AT[0])
    good = _ways(log, c, _surely_right(c), _LOOKED_AT[1])
    made.ways = [
        (f"{_element(c, n)}: {c.got[n]:.6g}, expected {c.wanted[n]:.6g}", right, _made_of(way))
        for right, some in ((False, bad), (True, good))
        for n, way in some.items()
    ]
    lines = _only_wrong([walk, *bad.values()], [*good.values()])
    suspect, why = first_to_look_at(walk.steps)
    odd = suspect is not None and ("finite" in why or "nobody" in why)
    only, made.others = [line for line, n in lines.items() if not n], list(lines)
    made.said += [
        f"all of {len(bad)} that are off came through {text.short(line)}, and {n} of "
        f"{len(good)} right ones"
        for line, n in lines.items()
    ]
    if only:
        made.line, made.first = only[0], True
        made.why = "is the first line that elements that are off came through, and right ones not"
    elif suspect is not None and odd:
        made.line = suspect.location or ""
        made.why = f"stands out: {why}. The mistake is there or before it."
    else:
        made.why = (
            "No line has only elements that are off"
            if not c.wrong.all()
            else "Every element is off, and came through the lines below"
        ) + ": compare what each of them made with what it should."
    return made


def _walk(log: Log, r: Region, element: int, before: int, known: Any = None) -> Walk:
    return Walk(log, r.key, r.bytes_of(np.asarray([element])), before, _LIMIT, known)


def _element(c: Checked, number: int) -> str:
    index = index_in(c.region.storage, int(c.region.places[number]))
    return f"{c.region.storage.title}{list(index)}"


def _made_of(way: Walk) -> list[str]:
    """Which elements of arguments, and what else that nothing in the launch wrote."""
    several = len({s.rank for s in way.sources.all()}) > 1
    found = [
        ("" if s.kind == "argument" else f"{s.kind} ")
        + s.part
        + (f" of rank {s.rank}" if several else "")
        for s in way.sources.all()
    ]
    return found + ([] if way.complete else ["..."])


def _ways(log: Log, c: Checked, some: np.ndarray, count: int) -> dict[int, Walk]:
    if not some.size:
        return {}
    chosen = np.unique(some[np.linspace(0, some.size - 1, count).astype(int)]).tolist()
    return {n: _walk(log, c.region, n, int(c.ends[n]) + 1) for n in chosen}


def _only_wrong(bad: Sequence[Walk], good: Sequence[Walk]) -> dict[str, int]:
    """Lines that all elements that are off came through, and not all right ones, in order, with how
    many right ones did."""
    if not good or not all(way.complete for way in (*bad, *good)):
        return {}
    lines = set.intersection(*({s.location for s in way.steps} for way in bad))
    right = Counter(line for way in good for line in {s.location for s in way.steps})
    ordered = [s.location for s in sorted(bad[0].steps, key=lambda s: s.step) if s.location]
    return {line: right[line] for line in ordered if line in lines and right[line] < len(good)}


def _surely_right(c: Checked) -> np.ndarray:
    """Elements that are right, in rows or columns that are: small numbers may seem so."""
    shape = c.region.shape
    wrong = c.wrong.reshape((-1, shape[-1]) if len(shape) > 1 else (1, -1))
    right = (~c.wrong & (c.ends >= 0)).reshape(wrong.shape)
    for axis in (1, 0):
        whole = right & ~wrong.any(axis, keepdims=True)
        if whole.any():
            right = whole
            break
    usual = np.abs(c.wanted[np.isfinite(c.wanted)])
    least = 0.1 * usual.mean() if usual.size else np.inf
    return np.flatnonzero(right.reshape(-1) & (np.abs(c.wanted) > least))
