"""A record as one HTML file: what every step read and wrote, as pictures that a script draws.

Works on columns and texts that others have made, and knows nothing of launches. Names, paths and
values of a kernel may hold anything; whatever of them becomes HTML goes through `text.escaped` here
or `textContent` in the script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from nki_dist.isa.core import CoreSlot
from nki_dist.program import Program
from nki_dist.report import text
from nki_dist.report.source import Listing

SCRIPTS: Final = (
    *("data.js", "moving.js", "timeline.js", "charts.js"),
    *("contents.js", "picture.js", "stepping.js", "record.js"),
)
STYLES: Final = ("style.css", "values.css")
_TENSORS: Final = 400  # rows of the table


def source(listings: Sequence[Listing], wrong: Any) -> str:
    """The functions whose lines ran, with how often.

    Args:
        wrong: what marks lines (`insight.wrong.Wrong`), or None.
    """
    first_wrong = wrong.line if wrong is not None and wrong.first else ""
    allocated = wrong.allocated if wrong is not None else {}
    marked = [wrong.line, *wrong.others] if wrong is not None else []

    def row(listing: Listing, n: int, number: int, line: str) -> str:
        where, count = f"{listing.file}:{number}", listing.total_us.get(number)
        kind = "used wrong" if where == first_wrong else "used suspect" * (where in marked)
        used = "" if count is None else f" id=s{n}-{number} class='{kind or 'used'}' tabindex=0"
        if where == first_wrong:
            used += f' data-first-wrong="{text.escaped(where)}" title="first wrong line"'
        if count is None and where in allocated:
            used = " class=suspect"
        times = "" if count is None else f"{int(count):,}×"
        html = "".join(f"<i>{text.escaped(one)}</i>" for one in allocated.get(where, ()))
        indent = len(line) - len(line.lstrip())
        return (
            f"<tr{used}><td class=n>{times}</td><td class=no>{number}</td>"
            f"<td class=src style=--indent:{indent}ch>{line}{html}</td></tr>"
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
    html = text.table(["tensor", "memory", "shape", "dtype", ""], rows, 0)
    return html + text.rest(len(kinds) - len(rows))


def dimensions(shape: Iterable[int]) -> str:
    return " × ".join(map(str, shape))


def difference(wrong: Any, chain: str) -> str:
    """The section about what was expected.

    Args:
        wrong: `insight.wrong.Wrong`; chain: HTML of the way of an element.
    """
    # What is off beside what is right, if there are both; the others where one asks for them.
    ways, right = [*wrong.ways], next((w for w in wrong.ways if w[1]), None)
    if right is not None:
        ways.remove(right)
        ways.insert(1, right)
    html = _sources(ways[:2]) if ways else ""
    html += text.details(len(ways) - 2, _sources(ways[2:]))
    items = "".join(f"<li>{text.escaped(s)}</li>" for s in wrong.said)
    line = f"<p class=verdict>{text.escaped(wrong.why)}</p>"
    if wrong.line:
        short = text.escaped(text.short(wrong.line))
        line = f"<p class=verdict><b class=mark>{short}</b> {text.escaped(wrong.why)}</p>"
    return (
        f"<section id=difference><h2>Beside what was expected: {text.escaped(wrong.name)}</h2>"
        f"{line}<ul class=facts>{items}</ul><div class=pictures id=compared></div>{html}{chain}"
        "</section>"
    )


def _sources(ways: Sequence[Any]) -> str:
    """What elements were made of: a column for each of them, a row for each argument."""
    heads = [
        f"<b class={'ok' if right else 'mark'}>{'right' if right else 'off'}</b> "
        + text.escaped(what)
        for what, right, _ in ways
    ]
    names = dict.fromkeys(name for *_, parts in ways for name in parts)
    rows = [[text.escaped(parts.get(name, "–")) for *_, parts in ways] for name in names]
    return text.table(["made of", *heads], [[text.escaped(n), *r] for n, r in zip(names, rows)], 0)


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


def left_out(pictures: Sequence[Any], most: int) -> str:
    """What of pictures isn't in the file, which has no more than `most` bytes."""
    sampled = sum(p.every != (1, 1) for p in pictures)
    included = sum(p.values.size for p in pictures)
    whole = sum(p.shape[0] * p.shape[1] for p in pictures)
    if not sampled:
        return "<p class=note>Every element of every picture is in this file.</p>"
    return (
        f"<p class=note>{sampled:,} of {len(pictures):,} pictures are samples: every second, "
        f"fourth, ... row or column. Of {whole:,} elements that were written, {included:,} are in "
        f"this file, which may have {text.size(most)} (<code>max_size=</code>, "
        "<code>--max-size</code>). "
        "Ranges, NaN and infinities are those of all elements. <code>nki-dist view</code> shows "
        "all elements of a step.</p>"
    )
