"""A record's page: its pictures, what was expected beside them, and the timeline, put together.

The size of the file is what pictures are fitted to: everything else is made first, then as much of
the pictures as there is room left for, measured as they are packed.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from nki_dist.errors import LaunchError, NkiError
from nki_dist.insight.columns import Columns, packed_pictures
from nki_dist.insight.film import Film, Picture
from nki_dist.insight.steps import Source, Step, shown
from nki_dist.insight.wrong import Wrong
from nki_dist.report import columns as events_of
from nki_dist.report import page as pages
from nki_dist.report import text, values
from nki_dist.report.source import listings
from nki_dist.timing.critical import critical_path
from nki_dist.timing.report import Profile

MAX_SIZE: Final = 8 << 20
TIMED: Final = 60_000  # steps of a launch whose page has a timeline
_AROUND: Final = 8192  # bytes of the file that nobody counts: the template, what was left out
_CHARTS: Final = 4 << 20  # bytes of a file that has room for the library that draws charts
_TRIED: Final = 4 << 20  # bytes of pictures that are packed to see how small they become
_SMALLEST: Final = 64  # bytes of a picture of which next to nothing is left


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
    launched, charts = film.launched, charts and most >= _CHARTS
    lines, names = Counter(made.arrays["line"].tolist()), made.head["files"]
    found = listings(
        [{"location": names[n], "total_us": k, "critical_us": 0} for n, k in sorted(lines.items())]
    )
    arrays, time = made.arrays, ""
    if timed is not None and len(made.steps) <= TIMED:
        try:
            timeline = timed().timeline
            events = events_of.columns(timeline, critical_path(timeline))
            columns = {**events.arrays(), "position": events.position}
            head = pages.events(timeline, events, found)
            time = pages.packed(pages.bundle(head, columns))
            arrays = {**arrays, "position": made.positions(timeline)}
        except NkiError:  # there is no time of what can't be timed
            time = ""
    data = {**made.head, "files": [[line, pages.anchor(line, found)] for line in names]}
    parts = {
        "title": text.escaped(launched.compiled.kernel),
        "style": "\n".join(map(pages.asset, values.STYLES)),
        "head": values.head(launched.compiled.programs[0], launched.slots[0], len(made.steps)),
        "difference": _difference(wrong, made) + values.notes(notes),
        "source": values.source(found, wrong),
        "tensors": values.tensors(made.head["tensors"]),
        "leftout": "",
        "data": pages.packed(pages.bundle(data, arrays)),
        "time": time,
        "library": pages.packed(pages.library()) if charts else "",
        "script": pages.scripts(values.SCRIPTS),
    }
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
        packed = pages.packed(pages.bundle(more, arrays))
        whole_page = pages.filled("values.html", {**parts, "pictures": packed})
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


# ---- what was expected --------------------------------------------------------------------------


def _difference(wrong: Wrong | None, made: Columns) -> str:
    if wrong is None:
        return ""
    told = chain(wrong.steps, made.steps, wrong.line, wrong.what, wrong.complete)
    return values.difference(wrong, told)


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
