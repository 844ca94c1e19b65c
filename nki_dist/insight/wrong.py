"""How a launch differs from what was expected, as a page shows it: facts, no guesses.

A line is called the first wrong one where there is evidence: all elements that were looked at and
are off came through it, and no right one did. Where right ones did in other rounds of it, that is
told. Which are looked at is a choice: the one that is off most, the first and the last, and right
ones where others around them are right, too: the nearest to the one that is off most, the first and
the last. A line that made the first number that isn't finite, read what nobody had written, or did
something odd (`Step.odd`), is told as that: the mistake may be another line's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from nki_dist.insight.differences import facts, in_words
from nki_dist.insight.expected import Checked, first_off, only_rounding, rounding_of, trusted
from nki_dist.insight.log import Log
from nki_dist.insight.origin import Walk, first_bad, first_to_look_at
from nki_dist.insight.steps import Step, index_in
from nki_dist.insight.unused import unused
from nki_dist.program import instructions
from nki_dist.program.walk import operands
from nki_dist.report import text

_LIMIT: Final = 400  # steps of each way
_NEAR: Final = 5  # rows and columns of the block around an element
_MOST: Final = 0.75  # of what is around a right element: more that is off makes it chance
_LINES: Final = 8  # that are told of in a sentence


@dataclass
class Wrong:
    """What a page says of a result that isn't as expected.

    Attributes:
        checked: the tensor, or what a line wrote; None if all is as expected.
        line: that stands out, or ""; why: for which reason; first: it is the first wrong one.
        others: more lines to look at.
        allocated: by line, the tensors that it allocates and lines that stand out use.
        steps: of the way of an element that is off, from the result back; start: the one to open.
        ways: elements with their numbers, whether they are right, and what they were made of, by
            argument; the first is the one whose way is told.
    """

    name: str
    said: list[str]
    checked: Checked | None = None
    line: str = ""
    why: str = ""
    first: bool = False
    others: list[str] = field(default_factory=list)
    allocated: dict[str, dict[str, None]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    start: Step | None = None
    ways: list[tuple[str, bool, dict[str, str]]] = field(default_factory=list)
    complete: bool = True


def told(log: Log, found: Sequence[Checked], rank: int) -> Wrong:
    """What a page says of the first tensor, in the order of the launch, that isn't as expected."""
    said = [str(c.told(log)) for c in found]
    if (c := first_off(found)) is None:
        hidden = list(filter(None, (only_rounding(log.launched, one) for one in found)))
        why = "Nothing is off by more than rounding." if hidden else "Nothing is off."
        return Wrong("as expected", said + hidden or ["nothing was compared"], why=why)
    result = Wrong(c.name, said[:-1] if len(found) > 1 else [], c)
    shape = c.region.shape or (1,)
    got, expected, off_here = (np.reshape(a, shape) for a in (c.got, c.expected, c.wrong))
    result.said += facts(got, expected, off_here, rounding_of(log.launched))
    worst, right = c.worst(), _surely_right(c)
    off = np.flatnonzero(c.wrong)
    bad = {n: _walk(log, c, n) for n in dict.fromkeys([worst, *off[[0, -1]].tolist()])}
    near = sum(abs(a - b) for a, b in zip(*(np.unravel_index(n, shape) for n in (right, worst))))
    some = right[[int(np.argmin(near)), 0, -1]].tolist() if right.size else []
    good = {n: _walk(log, c, n) for n in dict.fromkeys(some)}
    # What is as expected ends the way of this one: there may be more than outputs to compare with.
    walk = _walk(log, c, worst, trusted(found)) if len(found) > 1 else bad[worst]
    result.steps, result.complete = walk.steps, walk.complete
    of_rank = f" of rank {rank}" if log.launched.slots[0].ranks > 1 else ""
    result.ways = [
        (_element(c, n, of_rank), is_right, _sources(way))
        for is_right, ways in ((False, bad), (True, good))
        for n, way in ways.items()
    ]
    parts = list(unused(log, rank, walk.steps))  # says what is odd of steps, too
    odd = [(s, fact) for s in walk.steps for fact in s.odd]
    complete = all(way.complete for way in (walk, *bad.values(), *good.values()))
    lines = _told_apart(log, [walk, *bad.values()], [*good.values()]) if complete and good else {}
    first = next((line for line, (n, *_) in lines.items() if not n), "")
    suspect, fact = first_bad(walk.steps)
    if suspect is not None:
        fact += ". The mistake is there or before it"
    elif odd:
        suspect, fact = odd[-1]  # the earliest
    if first:
        result.line, result.first = first, True
        result.why = "is the first line that elements that are off came through, and right ones not"
        suspect = [s for s in walk.steps if s.location == first][-1]
    elif suspect is not None:
        result.line, result.why = suspect.location or "", f"stands out: {fact}."
        lines = {line: found for line, found in lines.items() if line == result.line}
    else:
        result.why, nearest = _no_line(c, bool(right.size), complete, lines)
        suspect = next((s for s in walk.steps if s.location == nearest), None)
    result.start = suspect or first_to_look_at(walk.steps)[0]
    of_lines = [f"{text.short(s.location or '?')} {fact}" for s, fact in odd]
    result.said += [*dict.fromkeys(of_lines)][:_LINES]
    result.said += [*parts, *_in_words(lines, len(bad), len(good))]
    odd_lines = [s.location or "" for s, _ in odd]
    result.others = [*lines, *odd_lines]
    result.allocated = _allocated(log, [result.line, *odd_lines])
    return result


def _no_line(c: Checked, right: bool, complete: bool, lines: dict[str, Any]) -> tuple[str, str]:
    """Why no line is named, and the one that comes nearest to having only elements that are off."""
    why, nearest = "No line has only elements that are off", ""
    if not right:
        why = "Every element is off" if c.wrong.all() else "No element is surely right"
        why += ", and what is off came through the lines below"
    elif not complete:
        why = f"Ways are longer than {_LIMIT} steps, and no line was judged by them"
    elif any(rounds for *_, rounds in lines.values()):
        why = "Lines made what is off and what is right in different rounds"
    elif lines:
        best, *more = sorted(lines, key=lambda line: lines[line][:2])
        if not more or lines[best][:2] < lines[more[0]][:2]:
            why, nearest = f"{why}; {text.short(best)} comes nearest to that", best
    return f"{why}: compare what each of them made with what it should.", nearest


def _walk(log: Log, c: Checked, element: int, right: Any = None) -> Walk:
    places = c.region.bytes_of(np.asarray([element]))
    return Walk(log, c.region.key, places, int(c.ends[element]) + 1, _LIMIT, right, odd=True)


def _element(c: Checked, number: int, of_rank: str) -> str:
    index = index_in(c.region.storage, int(c.region.places[number]))
    numbers = f"{c.got[number]:.6g}, expected {c.expected[number]:.6g}"
    return f"{c.region.storage.title}{list(index)}{of_rank} = {numbers}"


def _sources(way: Walk) -> dict[str, str]:
    """Which elements of arguments, and what else that nothing in the launch wrote, by name; ranks
    that give the same are one."""
    sources, ranks = way.sources.all(), defaultdict[tuple[str, str], list[int]](list)
    for s in sources:
        kind = "" if s.kind == "argument" else f"{s.kind} "
        ranks[kind + s.name, s.part].append(s.rank)
    several, found = len({s.rank for s in sources}) > 1, defaultdict[str, list[str]](list)
    for (name, part), who in ranks.items():
        of = f" of {in_words(np.unique(who), None, 'rank')}" if several else ""
        found[name].append(part + of)
    found.update({} if way.complete else {"...": ["..."]})
    return {name: "; ".join(parts) for name, parts in found.items()}


def _told_apart(log: Log, bad: Sequence[Walk], good: Sequence[Walk]) -> dict[str, Any]:
    """Lines that all elements that are off came through, and not all right ones, at least not in
    the same rounds: how many right ones came through the line, how many in the same rounds, and
    which rounds those that are off and right ones came through where no right one did."""
    passed = [defaultdict[str, set[int]](set) for _ in (*bad, *good)]
    for lines, way in zip(passed, (*bad, *good)):
        for s in way.steps:
            lines[s.location or "?"].add(s.step)
    off, right = passed[: len(bad)], passed[len(bad) :]
    found: dict[str, Any] = {}
    for line in sorted(off[0], key=lambda line: min(off[0][line])):
        through, theirs = [s[line] for s in off], [s[line] for s in right if s[line]]
        same = sum(any(steps <= way for steps in through) for way in theirs)
        if all(through) and same < len(good):
            other = set[int]().union(*theirs)
            both = set.union(*through) - other, other
            apart = not same and all(both)
            rounds = tuple(_rounds(log, steps) for steps in both) if apart else None
            found[line] = len(theirs), same, rounds
    return found


def _rounds(log: Log, steps: set[int]) -> str:
    """Which rounds of their line some steps are, on each core."""
    groups = defaultdict[str, list[str]](list)
    for core in sorted({log.cores[step] for step in steps}):
        mine = sorted(step for step in steps if log.cores[step] == core)
        kind = log.at(mine[0]).location, log.at(mine[0]).opcode
        same = [
            n
            for n, i in enumerate(log.instructions)
            if i is not None and log.cores[n] == core and (i.location, i.opcode) == kind
        ]
        rounds = np.searchsorted(same, [n for n in mine if n in same]) + 1
        groups[f"{in_words(rounds, None, 'round')} of {len(same)}"].append(
            log.launched.slots[core].title
        )
    if len(groups) == 1:
        return next(iter(groups))
    return " and ".join(f"{rounds} on {' and '.join(on)}" for rounds, on in groups.items())


def _in_words(lines: dict[str, Any], bad: int, good: int) -> Iterator[str]:
    """What `_told_apart` found, lines that are alike together, those that tell most first."""
    groups = defaultdict[Any, list[str]](list)
    for line, found in lines.items():
        groups[found].append(text.short(line))
    for (n, same, rounds), names in sorted(groups.items(), key=lambda item: item[0][:2]):
        which = ", ".join(names[:_LINES]) + ", ..." * (len(names) > _LINES)
        if rounds:
            off, right = rounds
            yield (
                f"those looked at that are off came through {off} of {which}; "
                f"right ones through {right}"
            )
        else:
            yield (
                f"all of {bad} that are off came through {which}, and {n} of {good} right ones"
                + f", {same} in the same rounds" * (same < n)
            )


def _allocated(log: Log, lines: Sequence[str]) -> dict[str, dict[str, None]]:
    """By line, the tensors that some lines use and that are allocated there."""
    found: dict[str, dict[str, None]] = {}
    for core in range(len(log.launched.slots)):
        program = log.launched.program(core)
        for i in instructions(program.body):
            if program.where(i.location) in lines:
                for _, a in operands(i.args):
                    s = a.storage
                    where = program.where(s.location) if s.role in ("local", "shared") else None
                    if where and where not in lines:
                        found.setdefault(where, {})[f"{s.title}: {s.dtype}"] = None
    return found


def _surely_right(c: Checked) -> np.ndarray:
    """Elements that are right where others are: those in the rows, columns or blocks of which least
    is off. Small numbers may seem right, and where nearly all are off some numbers are right by
    chance: neither counts."""
    shape = c.region.shape
    flat = (-1, shape[-1]) if len(shape) > 1 else (1, -1)
    wrong, expected = c.wrong.reshape(flat), np.abs(c.expected).reshape(flat)
    usual = expected[np.isfinite(expected)]
    least = 0.1 * usual.mean() if usual.size else np.inf
    right = ~wrong & (c.ends >= 0).reshape(flat) & (expected > least)

    def share(sums: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        off, both = (sums(a.astype(np.int32)) for a in (wrong, wrong | right))
        return np.where(both > 4, off / np.maximum(both, 1), 1)

    least_off = share(_of_block)
    for axis in (0, 1):
        least_off = np.minimum(least_off, share(partial(np.sum, axis=axis, keepdims=True)))
    best = least_off[right].min(initial=_MOST)
    return np.flatnonzero(right & (least_off <= best))


def _of_block(counts: np.ndarray) -> np.ndarray:
    padded, block = np.pad(counts, _NEAR // 2), (_NEAR, _NEAR)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, block).sum((2, 3)))
