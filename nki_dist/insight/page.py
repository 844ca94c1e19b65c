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

from nki_dist.errors import NkiError
from nki_dist.insight.columns import Columns, packed_pictures
from nki_dist.insight.film import Film, Picture
from nki_dist.insight.steps import Source, Step, shown, unanswered
from nki_dist.insight.wrong import Wrong
from nki_dist.report import columns as events_of
from nki_dist.report import page as pages
from nki_dist.report import text, values
from nki_dist.report.source import listings
from nki_dist.timing.critical import critical_path
from nki_dist.timing.report import Profile

MAX_SIZE: Final = 8 << 20
TIMED: Final = 60_000  # steps of a launch whose page has a timeline
_OVERHEAD: Final = 8192  # bytes of the file that nobody counts: the template, what was left out
_CHARTS: Final = 4 << 20  # bytes of a file that has room for the library that draws charts
_TRIED: Final = 4 << 20  # bytes of pictures that are packed to see how small they become
_CHAIN, _READS = 60, 6  # steps of a way that are shown, and what each read
_SMALLEST: Final = 64  # bytes of a picture of which next to nothing is left


def html(
    film: Film,
    columns: Columns,
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
    lines, names = Counter(columns.arrays["line"].tolist()), columns.head["files"]
    found = listings(
        [{"location": names[n], "total_us": k, "critical_us": 0} for n, k in sorted(lines.items())]
    )
    arrays, time = columns.arrays, ""
    if timed is not None and len(columns.steps) <= TIMED:
        try:
            timeline = timed().timeline
            events = events_of.columns(timeline, critical_path(timeline))
            timed_arrays = {**events.arrays(), "position": events.position}
            head = pages.events(timeline, events, found)
            time = pages.packed(pages.bundle(head, timed_arrays))
            arrays = {**arrays, "position": columns.positions(timeline)}
        except NkiError:  # there is no time of what can't be timed
            time = ""
    data = {**columns.head, "files": [[line, pages.anchor(line, found)] for line in names]}
    parts = {
        "title": text.escaped(launched.compiled.kernel),
        "style": "\n".join(map(pages.asset, values.STYLES)),
        "head": values.head(launched.compiled.programs[0], launched.slots[0], len(columns.steps)),
        "difference": _difference(wrong, columns) + values.notes(notes),
        "source": values.source(found, wrong),
        "tensors": values.tensors(columns.head["tensors"]),
        "leftout": "",
        "data": pages.packed(pages.bundle(data, arrays)),
        "time": time,
        "library": pages.packed(pages.library()) if charts else "",
        "script": pages.scripts(values.SCRIPTS),
    }
    compared, told = _compared(wrong)
    start = columns.steps[wrong.start.step] if wrong and wrong.start else 0  # is shown first
    more = {"compared": told, "start": start, "live": live}
    size = sum(len(part.encode()) for part in parts.values()) + _OVERHEAD
    least = size + len(film.pictures) * _SMALLEST
    if most < least:
        fault = f"max_size={most}; the page of this launch takes at least {least:,} bytes"
        raise unanswered(fault, got=most, least=least)
    return _fitted(film, columns, compared, more, parts, (most - size) * 3 // 4, most)


def _fitted(
    film: Film,
    columns: Columns,
    compared: list[Picture],
    more: dict[str, Any],
    parts: dict[str, str],
    budget: int,
    most: int,
) -> str:
    """The page with as much of the pictures as there is room for, in packed bytes."""
    film.fit(int(budget / _packs(film)))
    for attempt in range(6):
        pictures, of = columns.pictures()
        arrays = packed_pictures([*pictures, *compared], [*of, *[2**31 - 1] * len(compared)])
        parts["leftout"] = values.left_out(film.of_writes, most)
        packed = pages.packed(pages.bundle(more, arrays))
        whole_page = pages.filled("values.html", {**parts, "pictures": packed})
        size = len(whole_page) - sum(map(len, parts.values()))
        if size * 3 // 4 <= budget:
            break
        # Packed, they take this share of what they are; smaller ones pack a little worse.
        film.fit(int(film.taken * budget / (size * 3 / 4) * (0.98 - 0.02 * attempt)))
    return whole_page


def _packs(film: Film) -> float:
    """How much smaller packing makes pictures, about: what it does to some of them."""
    some = film.of_writes[:: max(film.taken // _TRIED, 1)]
    values = packed_pictures(some, [0] * len(some))["values"]
    return len(zlib.compress(values.tobytes(), 6)) / max(values.nbytes, 1) or 1.0


# ---- what was expected --------------------------------------------------------------------------


def _difference(wrong: Wrong | None, columns: Columns) -> str:
    if wrong is None:
        return ""
    what = wrong.ways[0][0] if wrong.ways else ""
    told = chain(wrong.steps, columns.steps, what, wrong.complete, wrong.line)
    return values.difference(wrong, told)


def chain(
    steps: Sequence[Step],
    dense: Mapping[int, int],
    what: str,
    complete: bool = True,
    line: str = "",
) -> str:
    """Where an element came from, the result first: a picture of each tensor on the way, as HTML.
    Steps of a line that are alike are one: those of ranks, and of rounds.

    Args:
        dense: steps of the page by their numbers.
        what: the element and its number; line: that stands out, or "".
    """
    if not steps:
        return ""
    ranks = {one.rank for s in steps for one in (s, *s.reads)}
    groups: dict[Any, list[str]] = {}
    for s in steps:
        reads = [f"from {_read(r, len(ranks) > 1)}" for r in s.reads[:_READS]]
        reads += ["..."] * (len(s.reads) > _READS)
        kind = " class=wrong" if s.location == line != "" else ""
        kind_of = s.location, s.instruction, s.tensor, s.shape, s.dtype, s.count, *s.odd
        groups.setdefault(kind_of, []).append(
            f"<li data-step={dense[s.step]} tabindex=0{kind}>{_place(s)}<div>"
            f"<b>{text.escaped(text.short(s.location or '?'))}</b> {text.escaped(s.instruction)} "
            f"wrote {text.escaped(s.part)} ({text.escaped(s.dtype)}): "
            f"<code>{text.escaped(shown(s.values))}</code>"
            f"<b class=mark>{text.escaped('; '.join(s.odd))}</b>"
            f"<p>{'<br>'.join(map(text.escaped, reads))}</p></div></li>"
        )
    equal = list(groups.values())[:_CHAIN]
    rows = [
        one + f"<li>{text.details(len(more), f'<ol>{chr(10).join(more)}</ol>')}</li>" * bool(more)
        for one, *more in equal
    ]
    note = text.rest(len(steps) - sum(map(len, equal)), " steps")
    if not complete:
        note += "<p class=note>and further back: record.origin(limit=None) follows all of it</p>"
    return (
        f"<details open class=chain><summary>Where {text.escaped(what)} came from, "
        "the last step first</summary>"
        f"<ol>{''.join(rows)}</ol>{note}</details>"
    )


def _read(r: Step | Source, several: bool) -> str:
    kind = f"{r.kind} " if isinstance(r, Source) else ""
    of = f" of rank {r.rank}" * (several and bool(kind))
    return f"{kind}{r.part}{of}" + (f" = {shown(r.values)}" if r.values.size else "")


def _place(s: Step) -> str:
    """A tensor as a rectangle, with the part that matters."""
    if not s.shape:
        return "<svg class=place></svg>"
    rows, columns = s.shape[0], max(int(np.prod(s.shape[1:])), 1)
    y, x = (0, rows - 1), (0, columns - 1)
    if s.elements.size:
        y, x = ((n.min(), n.max()) for n in np.divmod(s.elements, columns))
    w, h = (max(n * 64 / max(rows, columns), 4) for n in (columns, rows))
    wide, high = (x[1] + 1 - x[0]) * w / columns, (y[1] + 1 - y[0]) * h / rows
    return (
        f"<svg class=place width=68 height={h + 4:.0f} viewBox='-2 -2 68 {h + 4:.1f}'>"
        f"<rect class=whole width={w:.1f} height={h:.1f} /><rect class=part "
        f"x={x[0] * w / columns:.1f} y={y[0] * h / rows:.1f} width={max(wide, 2):.1f} "
        f"height={max(high, 2):.1f} /></svg>"
    )


def _compared(wrong: Wrong | None) -> tuple[list[Picture], dict[str, Any]]:
    """Pictures of what was expected, of what there is, and of which elements are off."""
    if wrong is None or wrong.checked is None:
        return [], {}
    c, shape = wrong.checked, wrong.checked.region.shape
    flat = (-1, shape[-1]) if len(shape) > 1 else (1, -1)
    arrays = [np.reshape(a, flat) for a in (c.expected, c.got, c.wrong.astype(np.uint8))]
    told = {"shape": list(arrays[0].shape), "tensor": c.region.storage.title}
    return [Picture(a.astype(np.float32), True) for a in arrays], told
