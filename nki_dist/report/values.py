"""A record as one HTML file: what every step read and wrote, as pictures that a script draws.

Works on columns and texts that others have made, and knows nothing of launches. Names, paths and
values of a kernel may hold anything; whatever of them becomes HTML goes through `text.escaped` here
or `textContent` in the script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from nki_dist.isa.core import CoreSlot
from nki_dist.program import Program
from nki_dist.report import text
from nki_dist.report.source import Listing

SCRIPTS: Final = (
    *("data.js", "moving.js", "timeline.js", "charts.js"),
    *("contents.js", "picture.js", "stepping.js", "record.js"),
)
STYLES: Final = ("style.css", "values.css")
_CHAIN: Final = 60  # steps of an origin
_TENSORS: Final = 400  # rows of the table


def source(listings: Sequence[Listing], wrong: Any) -> str:
    """The functions whose lines ran, with how often.

    Args:
        wrong: what marks lines (`insight.wrong.Wrong`), or None.
    """
    first_wrong = wrong.line if wrong is not None and wrong.first else ""
    marked = [wrong.line, *wrong.others] if wrong is not None else []

    def row(listing: Listing, n: int, number: int, line: str) -> str:
        where, count = f"{listing.file}:{number}", listing.total_us.get(number)
        kind = "used wrong" if where == first_wrong else "used suspect" * (where in marked)
        used = "" if count is None else f" id=s{n}-{number} class='{kind or 'used'}' tabindex=0"
        if where == first_wrong:
            used += f' data-first-wrong="{text.escaped(where)}" title="first wrong line"'
        times = "" if count is None else f"{int(count):,}×"
        return (
            f"<tr{used}><td class=n>{times}</td><td class=no>{number}</td>"
            f"<td class=src>{line}</td></tr>"
        )

    return "".join(
        text.code(listing, True, 3, partial(row, listing, n)) for n, listing in enumerate(listings)
    )


def tensors(told: Sequence[Sequence[Any]]) -> str:
    """All tensors, equal ones once."""
    kinds: dict[tuple[str, ...], list[int]] = {}
    for n, (name, memory, shape, dtype, *_) in enumerate(told):
        kinds.setdefault((name, memory, dimensions(shape), dtype), []).append(n)
    rows = [
        [
            f"<button class=link data-tensor={numbers[0]}>{text.escaped(name)}</button>",
            *map(text.escaped, (memory, shape, dtype)),
            f"{len(numbers):,}×" if len(numbers) > 1 else "",
        ]
        for (name, memory, shape, dtype), numbers in list(kinds.items())[:_TENSORS]
    ]
    made = text.table(["tensor", "memory", "shape", "dtype", ""], rows, 0)
    return made + text.rest(len(kinds) - len(rows))


def dimensions(shape: Iterable[int]) -> str:
    return " × ".join(map(str, shape))


def difference(wrong: Any, chain: str) -> str:
    """The section about what was expected.

    Args:
        wrong: `insight.wrong.Wrong`; chain: HTML of the way of an element.
    """
    rows = [
        [
            f"<b class={'ok' if right else 'mark'}>{'right' if right else 'off'}</b>",
            text.escaped(what),
            "<br>".join(map(text.escaped, parts)),
        ]
        for what, right, parts in wrong.ways
    ]
    made = text.table(["", "element", "made of"], rows, 0) if rows else ""
    items = "".join(f"<li>{text.escaped(s)}</li>" for s in wrong.said)
    line = f"<p class=verdict>{text.escaped(wrong.why)}</p>"
    if wrong.line:
        short = text.escaped(text.short(wrong.line))
        line = f"<p class=verdict><b class=mark>{short}</b> {text.escaped(wrong.why)}</p>"
    return (
        f"<section id=difference><h2>Beside what was expected: {text.escaped(wrong.name)}</h2>"
        f"{line}<ul class=facts>{items}</ul><div class=pictures id=compared></div>{made}{chain}"
        "</section>"
    )


def chain(what: str, value: str, steps: Sequence[Mapping[str, Any]], complete: bool) -> str:
    """Where an element came from, the result first: a picture of each tensor on the way.

    Args:
        steps: with step, line, instruction, tensor, index, count, values, shape, box (rows and
            columns, as shares of the tensor), reads (texts), first (it stands out).
    """
    rows = []
    for s in steps[:_CHAIN]:
        more = f" and {s['count'] - 1:,} more" if s["count"] > 1 else ""
        rows.append(
            f"<li data-step={int(s['step'])} tabindex=0{' class=wrong' if s['first'] else ''}>"
            f"{_place(s['shape'], s['box'])}<div><b>{text.escaped(text.short(s['line']))}</b> "
            f"{text.escaped(s['instruction'])} wrote {text.escaped(s['tensor'])}"
            f"{text.escaped(list(s['index']))}{more} ({text.escaped(s['dtype'])}): "
            f"<code>{text.escaped(s['values'])}</code>"
            f"<p>{'<br>'.join(map(text.escaped, s['reads']))}</p></div></li>"
        )
    note = text.rest(len(steps) - len(rows), " steps")
    if not complete:
        note += "<p class=note>and further back: record.origin(limit=None) follows all of it</p>"
    return (
        f"<details open class=chain><summary>Where {text.escaped(what)} = {text.escaped(value)} "
        f"came from, the last step first</summary><ol>{''.join(rows)}</ol>{note}</details>"
    )


def _place(shape: Sequence[int], box: Sequence[float]) -> str:
    """A tensor as a rectangle, with the part that matters."""
    if not shape:
        return "<svg class=place></svg>"
    rows, columns = shape[0], max(int(np.prod(shape[1:])), 1)
    scale = 64 / max(rows, columns)
    w, h = max(columns * scale, 4), max(rows * scale, 4)
    x, y, x2, y2 = box[2] * w, box[0] * h, box[3] * w, box[1] * h
    return (
        f"<svg class=place width=68 height={h + 4:.0f} viewBox='-2 -2 68 {h + 4:.1f}'>"
        f"<rect class=whole width={w:.1f} height={h:.1f} /><rect class=part x={x:.1f} y={y:.1f} "
        f"width={max(x2 - x, 2):.1f} height={max(y2 - y, 2):.1f} /></svg>"
    )


def notes(said: Sequence[str]) -> str:
    """Texts as they are."""
    texts = "".join(f"<pre>{text.escaped(one)}</pre>" for one in said)
    return f"<section><h2>Answers</h2>{texts}</section>" if texts else ""


def head(program: Program, slot: CoreSlot, steps: int) -> str:
    cores = f"{slot.cores} core{'s' * (slot.cores > 1)}"
    sizes = f"{slot.ranks} ranks of {cores}" if slot.ranks > 1 else cores
    return (
        f"<h1>{text.escaped(program.kernel)}</h1><p class=sub>{text.escaped(program.platform)} · "
        f"{sizes} · {steps:,} steps</p>"
    )


def left_out(sampled: int, pictures: int, kept: int, whole: int, most: int) -> str:
    """What isn't in the file."""
    if not sampled:
        return "<p class=note>Every element of every picture is in this file.</p>"
    return (
        f"<p class=note>{sampled:,} of {pictures:,} pictures are samples: every second, fourth, "
        f"... row or column. Of {whole:,} elements that were written, {kept:,} are in this file, "
        f"which may have {text.size(most)} (<code>max_size=</code>, <code>--max-size</code>). "
        "Ranges, NaN and infinities are those of all elements. <code>nki-dist view</code> shows "
        "all elements of a step.</p>"
    )
