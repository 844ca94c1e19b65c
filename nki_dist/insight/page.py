"""A record's page: its pictures, what was expected beside them, and the timeline, put together.

The size of the file is what pictures are fitted to: everything else is made first, then as much of
the pictures as there is room left for, measured as they are packed.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nki_dist.errors import LaunchError, NkiError
from nki_dist.insight.columns import Columns, packed_pictures
from nki_dist.insight.differences import facts
from nki_dist.insight.expected import Checked, rounding_of, trusted
from nki_dist.insight.film import Film, Picture
from nki_dist.insight.log import Log
from nki_dist.insight.origin import Walk, first_to_look_at
from nki_dist.insight.regions import Region
from nki_dist.insight.steps import Source, Step, index_in, shown
from nki_dist.report import columns as events_of
from nki_dist.report import page as pages
from nki_dist.report import text, values
from nki_dist.report.source import Listing, listings
from nki_dist.timing.critical import critical_path
from nki_dist.timing.report import Profile
from nki_dist.timing.timeline import Timeline

MAX_SIZE: Final = 8 << 20
TIMED: Final = 60_000  # steps of a launch whose page has a timeline
_AROUND: Final = 8192  # bytes of the file that nobody counts: the template, what was left out
_CHARTS: Final = 4 << 20  # bytes of a file that has room for the library that draws charts
_TRIED: Final = 4 << 20  # bytes of pictures that are packed to see how small they become
_SMALLEST: Final = 64  # bytes of a picture of which next to nothing is left
_LOOKED_AT: Final = 2, 3  # wrong and right elements whose ways are compared
_LIMIT: Final = 400  # steps of each


@dataclass
class Wrong:
    """What a page says of a result that isn't as expected.

    Attributes:
        checked: the tensor, or what a line wrote; None if all is as expected.
        line: the first wrong line, or "" where none stands out; why: for which reason.
        others: lines that all that are off came through, and not all right ones.
        steps: of the way of an element that is off, from the result back.
        ways: elements with their numbers, whether they are right, and what they were made of.
    """

    name: str
    said: list[str]
    checked: Checked | None = None
    line: str = ""
    why: str = ""
    others: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    ways: list[tuple[str, bool, list[str]]] = field(default_factory=list)
    what: str = ""
    complete: bool = True


def html(
    film: Film,
    made: Columns,
    timed: Callable[[], Profile] | None,
    wrong: Wrong | None,
    most: int = MAX_SIZE,
    charts: bool = True,
    notes: Sequence[str] = (),
    live: bool = False,
) -> str:
    """The page.

    Args:
        timed: gives the launch's profile, or None.
        most: bytes that it may have.
        charts: with the library that draws them.
        notes: texts to show.
        live: somebody answers what the page asks for.
    """
    launched = film.launched
    lines = Counter(made.arrays["line"].tolist())
    names = made.head["files"]
    found = listings(
        [
            {"location": names[n], "critical_us": 0, "total_us": k, "opcode": "", "engine": ""}
            for n, k in sorted(lines.items())
        ]
    )
    data = _data(made, found)
    time = None
    if timed is not None and len(made.steps) <= TIMED:
        try:
            time, positions = _time(timed().timeline, made, found)
            data[1]["position"] = positions
        except NkiError:  # there is no time of what can't be timed
            time = None
    parts = values.page(
        launched.compiled.kernel,
        values.head(
            launched.compiled.kernel,
            launched.compiled.programs[0].platform,
            launched.slots[0].ranks,
            launched.slots[0].cores,
            len(made.steps),
        ),
        _difference(wrong, made) + values.notes(notes),
        values.source(found, wrong.line if wrong else "", wrong.others if wrong else ()),
        values.tensors(made.head["tensors"]),
        "",
        data,
        time,
        charts and most >= _CHARTS,
    )
    compared, told = _compared(wrong)
    more = {"compared": told, "start": _start(wrong, made), "live": live}
    size = sum(len(part.encode()) for part in parts.values()) + _AROUND
    least = size + len(film.pictures) * _SMALLEST
    if most < least:
        raise LaunchError(
            f"max_size={most}; the page of this launch takes at least {least:,} bytes",
            code="record-question",
            numbers={"got": most, "least": least},
        )
    return _fitted(film, made, compared, more, parts, (most - size) * 3 // 4, most)


def _start(wrong: Wrong | None, made: Columns) -> int:
    """The step that is shown first."""
    ways = [s for s in wrong.steps if s.location == wrong.line] if wrong else []
    if wrong and wrong.steps:
        return made.steps[min(s.step for s in ways or wrong.steps[:1])]
    return 0


def _fitted(
    film: Film,
    made: Columns,
    compared: list[Picture],
    more: dict[str, Any],
    parts: dict[str, str],
    room: int,
    most: int,
) -> str:
    """The page with as much of the pictures as there is room for, in packed bytes."""
    whole = sum(p.shape[0] * p.shape[1] for found in film.pictures.values() for p in found)
    film.fit(int(room / _packs(film)))
    for attempt in range(6):
        pictures, of = made.pictures()
        arrays = packed_pictures([*pictures, *compared], [*of, *[2**31 - 1] * len(compared)])
        kept = sum(p.values.size for found in film.pictures.values() for p in found)
        count = sum(map(len, film.pictures.values()))
        parts["leftout"] = values.left_out(film.sampled, count, kept, whole, most)
        whole_page = values.written(parts, arrays, more)
        size = len(whole_page) - sum(map(len, parts.values()))
        if size * 3 // 4 <= room:
            break
        # Packed, they take this share of what they are; smaller ones pack a little worse.
        film.fit(int(film.taken * room / (size * 3 / 4) * (0.98 - 0.02 * attempt)))
    return whole_page


def _packs(film: Film) -> float:
    """How much smaller packing makes pictures, about: what it does to some of them."""
    every = [p for found in film.pictures.values() for p in found]
    some = every[:: max(film.taken // _TRIED, 1)]
    values = packed_pictures(some, [0] * len(some))["values"]
    return len(zlib.compress(values.tobytes(), 6)) / max(values.nbytes, 1) or 1.0


def _data(made: Columns, found: Sequence[Listing]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    lines = [[line, pages.anchor(line, found)] for line in made.head["files"]]
    return {**made.head, "files": lines}, dict(made.arrays)


def _time(
    timeline: Timeline, made: Columns, found: Sequence[Listing]
) -> tuple[tuple[dict[str, Any], dict[str, np.ndarray]], np.ndarray]:
    events = events_of.columns(timeline, critical_path(timeline))
    arrays = {**events.arrays(), "position": events.position}
    return (pages.events(timeline, events, found), arrays), made.positions(timeline)


# ---- what was expected --------------------------------------------------------------------------


def _difference(wrong: Wrong | None, made: Columns) -> str:
    if wrong is None:
        return ""
    told = chain(wrong.steps, made.steps, wrong.line, wrong.what, wrong.complete)
    return values.difference(wrong.name, wrong.said, wrong.line, wrong.why, wrong.ways, told)


def chain(
    steps: Sequence[Step], dense: Mapping[int, int], line: str, what: str, complete: bool = True
) -> str:
    """The way of an element as HTML; `dense` has steps by their numbers."""
    if not steps:
        return ""
    told = [
        {
            "step": dense[s.step],
            "line": s.location or "?",
            "instruction": s.instruction,
            "tensor": s.tensor,
            "index": s.index,
            "count": s.count,
            "values": shown(s.values),
            "dtype": s.dtype,
            "shape": s.shape,
            "box": _box(s),
            "reads": _reads(s),
            "first": s.location == line != "",
        }
        for s in steps
    ]
    return values.chain(what, shown(steps[0].values[:1]), told, complete)


def _box(s: Step) -> tuple[float, float, float, float]:
    """Where its elements are: rows and columns, as shares of the tensor."""
    if not s.elements.size:
        return 0.0, 1.0, 0.0, 1.0
    across = max(int(np.prod(s.shape[1:])), 1)
    rows, columns = s.elements // across, s.elements % across
    low, high = rows.min() / s.shape[0], (rows.max() + 1) / s.shape[0]
    return float(low), float(high), columns.min() / across, (columns.max() + 1) / across


def _reads(s: Step) -> list[str]:
    found = []
    for r in s.reads[:6]:
        if isinstance(r, Source):
            found.append(f"from {r}")
        else:
            more = f" and {r.count - 1:,} more" if r.count > 1 else ""
            found.append(f"from {r.tensor}{list(r.index)}{more} = {shown(r.values)}")
    return found + (["..."] if len(s.reads) > 6 else [])


def _compared(wrong: Wrong | None) -> tuple[list[Picture], dict[str, Any]]:
    """Pictures of what was expected, of what there is, and of which elements are off."""
    if wrong is None or wrong.checked is None:
        return [], {}
    c, shape = wrong.checked, wrong.checked.region.shape
    flat = (-1, shape[-1]) if len(shape) > 1 else (1, -1)
    made = [np.reshape(a, flat) for a in (c.wanted, c.got, c.wrong.astype(np.uint8))]
    told = {"shape": list(made[0].shape), "tensor": c.region.storage.title, "whole": list(shape)}
    return [Picture(a.astype(np.float32), True) for a in made], told


def told(log: Log, found: Sequence[Checked], rank: int) -> Wrong:
    """What a page says of the first tensor, in the order of the launch, that isn't as expected."""
    off = [c for c in found if c.wrong.any()]
    said = [str(c.told(log)) for c in found]
    if not off:
        return Wrong("as expected", said or ["nothing was compared"], why="Nothing is off.")
    c = min(off, key=lambda c: c.departs)
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
    certain = suspect is not None and ("finite" in why or "nobody" in why)
    only, made.others = [line for line, n in lines.items() if not n], list(lines)
    made.said += [
        f"all of {len(bad)} that are off came through {text.short(line)}, and {n} of "
        f"{len(good)} right ones"
        for line, n in lines.items()
    ]
    if only:
        made.line = only[0]
        made.why = "is the first line that elements that are off came through, and right ones not"
    elif suspect is not None and certain:
        made.line, made.why = suspect.location or "", f"is the first that stands out: {why}"
    else:
        made.why = (
            "Elements that are off and right ones came through the same lines"
            if not c.wrong.all()
            else "Every element is off, and came through the lines below"
        ) + ": compare what each of them made with what it should."
    return made


def _walk(log: Log, r: Region, element: int, before: int, known: Any = None) -> Walk:
    made = Walk(log, _LIMIT, known)
    made.run(r.key, r.bytes_of(np.asarray([element])), before)
    return made


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
    return np.flatnonzero(right.reshape(-1) & (np.abs(c.wanted) > 0.1 * usual.mean()))
