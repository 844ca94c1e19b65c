"""An error as a page: one HTML file without scripts, with a picture of what went wrong.

Pictures are plain data, a dict with `kind` and

- "outside": `label`, `shape` of a tensor, `dim`, and `asked`, the [start, stop) that were asked of
  that dimension;
- "waits": `nodes` (name, what, line, fault) and `edges` (from, to: numbers of nodes), who waits
  for whom; and `sides`, descriptions that disagree, two or none, each with name, line and fields;
- "overlap": `label`, `shape`, `sides` (name, what, line) of two cores, `grid`: lines of digits,
  each for some elements: 0 nobody, 1 and 2 one core, 3 both, 4 both and with other bytes; `cell`:
  how many rows and columns of the tensor one digit stands for.

Lies below everything that raises errors, so it knows nothing but texts and numbers. Names and
messages may hold anything, and are escaped here.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from math import prod
from pathlib import PurePath
from typing import Any, Final

Picture = Mapping[str, Any]
_CONTEXT: Final = 5  # lines of source before and after
_WIDE, _HIGH = 420, 260  # pixels of a tensor, at most


def outside(
    label: str, shape: Sequence[int], dim: int, asked: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    """What was asked of a dimension of a tensor, in part outside it."""
    few = [[int(a), int(b)] for a, b in asked[:64]]
    whole = [int(n) for n in shape]
    return {"kind": "outside", "label": label, "shape": whole, "dim": dim, "asked": few}


def page(error: Mapping[str, Any], text: str, location: str | None, picture: Picture | None) -> str:
    """The page of an error.

    Args:
        error: `Diagnostic.to_dict()`; text: its message as it is printed.
        location: the kernel's line.
        picture: as above, or None.
    """
    draw = {"outside": _outside, "waits": _waits, "overlap": _overlap}
    drawn = "" if picture is None else draw[picture["kind"]](picture)
    lines = dict.fromkeys(filter(None, [location, *_lines(picture or {})]))
    rows = "".join(
        f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>"
        for name, value in error["numbers"].items()
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(error['type'])}: {_text(error['code'])}</title>"
        f'<link rel="icon" href="data:,"><style>{_style()}</style></head><body><main>'
        f"<h1>{_text(error['type'])} <small>{_text(error['code'])}</small></h1>"
        f"<section><pre>{_text(text)}</pre></section>"
        f"{drawn}{''.join(map(_source, lines))}"
        + (f"<section><h2>What to do</h2>{_text(error['hint'])}</section>" if error["hint"] else "")
        + (f"<section><h2>Numbers</h2><table>{rows}</table></section>" if rows else "")
        + "</main></body></html>\n"
    )


def _style() -> str:
    return files("nki_dist.codes").joinpath("failure.css").read_text("utf-8")


def _text(value: object) -> str:
    return escape(str(value))


def _short(location: str | None) -> str:
    return _text(PurePath(location).name) if location else ""


def _lines(picture: Picture) -> Iterable[str | None]:
    for part in ("nodes", "sides"):
        for one in picture.get(part, ()):
            yield one["line"]


def _source(location: str) -> str:
    """The kernel around a line."""
    file, _, number = location.rpartition(":")
    text = linecache.getlines(file) if number.isdigit() else []
    if not text:
        return ""
    at = int(number)
    rows = [
        f"<div{' class=here' if n == at else ''}><i>{n:>5} </i> {_text(text[n - 1].rstrip())}</div>"
        for n in range(max(1, at - _CONTEXT), min(len(text), at + _CONTEXT) + 1)
    ]
    return f"<section><h2>{_short(location)}</h2><pre class=code>{''.join(rows)}</pre></section>"


# ---- pictures -----------------------------------------------------------------------------------


def _outside(p: Picture) -> str:
    """The tensor as a rectangle, and what was asked as bands that leave it."""
    shape, dim = p["shape"], p["dim"]
    down = dim == 0 and len(shape) > 1
    size = shape[dim]
    low, high = (f([0, size, *(n for pair in p["asked"] for n in pair)]) for f in (min, max))
    high = max(high, low + 1)
    most = _HIGH if down else _WIDE
    across = _WIDE / 2 if down else 80
    scale = most / (high - low)

    def band(a: float, b: float, kind: str) -> str:
        start, length = (a - low) * scale, max((b - a) * scale, 2)
        x, y, w, h = (0, start, across, length) if down else (start, 0, length, across)
        return f"<rect class={kind} x={x + 1:.1f} y={y + 20:.1f} width={w:.1f} height={h:.1f} />"

    parts = [band(0, size, "whole")]
    for a, b in p["asked"]:
        inside, after = (max(a, 0), min(b, size)), (max(a, size), b)
        for (start, stop), kind in ((inside, "inside"), ((a, min(b, 0)), "out"), (after, "out")):
            if start < stop or (a == b and kind == "out" and start == a):
                parts.append(band(start, max(stop, start), kind))
    width, height = (across, most) if down else (most, across)
    name = "row" if down else "element" if len(shape) < 2 else "column"
    said = ", ".join(f"{a} to {b - 1}" if b > a + 1 else str(a) for a, b in p["asked"][:8])
    beyond = [n for a, b in p["asked"] for n in (min(b, 0) - a, b - max(a, size)) if n > 0]
    note = f"{sum(beyond):,} {name}{'s' * (sum(beyond) != 1)} outside" if beyond else ""
    return (
        f"<section><h2>What is outside of {_text(p['label'])}</h2>"
        f"<p>Dimension {dim} has {size:,} {name}s, 0 to {size - 1:,}; asked for: {_text(said)}. "
        f"<b>{note}</b></p><svg width={width + 4:.0f} height={height + 26:.0f} "
        f"viewBox='0 0 {width + 4:.0f} {height + 26:.0f}'><text x=2 y=13>{low:,} … {high - 1:,} "
        f"{'down' if down else 'across'}</text>{''.join(parts)}</svg>"
        "<p class=soft><span class=key style='background:var(--one)'></span>inside"
        "<span class=key style='background:var(--bad)'></span>outside</p></section>"
    )


def _waits(p: Picture) -> str:
    """Who waits for whom: a row for each, and an arrow from it to whom it waits for."""
    nodes, edges = p["nodes"], p["edges"]
    arcs = "".join(  # in rows; those of a page are all as high as the highest
        f"<path class=arc d='M88 {a + 0.3} C{x} {a + 0.3} {x} {b + 0.5} 80 {b + 0.5}' />"
        for a, b in edges
        for x in [80 - min(14 * (abs(a - b) + 1), 76)]
    )
    targets = {b for _, b in edges}
    rows = "".join(
        f"<div class='{'fault' * n['fault']} {'target' * (at in targets)}'>"
        f"<b>{_text(n['name'])}</b> {_text(n['what'])}<br>"
        f"<span class=soft>{_short(n['line'])}</span></div>"
        for at, n in enumerate(nodes)
    )
    return (
        f"{_sides(p.get('sides', ()))}<section><h2>Who waits for whom</h2><div class=waits>"
        f"<svg viewBox='0 0 90 {len(nodes)}' preserveAspectRatio=none>{arcs}</svg>"
        f"{rows}</div>"
        "<p class=soft>Marked: who is taken to be at fault.</p></section>"
    )


def _sides(sides: Sequence[Mapping[str, Any]]) -> str:
    """Two descriptions beside each other; what differs stands out."""
    if not sides:
        return ""
    one, two = sides
    rows = []
    for name in {**one["fields"], **two["fields"]}:
        a, b = (side["fields"].get(name, "–") for side in sides)
        kind = " class=apart" if a != b else ""
        rows.append(f"<tr{kind}><th>{_text(name)}</th><td>{_text(a)}</td><td>{_text(b)}</td></tr>")
    heads = "".join(f"<th>{_text(s['name'])}<br>{_short(s['line'])}</th>" for s in sides)
    return (
        f"<section><h2>What the two sides say</h2><table><tr><th></th>{heads}</tr>"
        f"{''.join(rows)}</table></section>"
    )


def _overlap(p: Picture) -> str:
    """The tensor, with what each core touches."""
    grid, (down, across) = p["grid"], p["cell"]
    size = max(1.0, min(_WIDE / len(grid[0]), _HIGH / len(grid), 16.0))
    parts = []
    for y, row in enumerate(grid):
        x = 0
        while x < len(row):
            end = x
            while end < len(row) and row[end] == row[x]:
                end += 1
            if row[x] != "0":
                parts.append(
                    f"<rect class=c{row[x]} x={x * size:.1f} y={y * size:.1f} "
                    f"width={(end - x) * size:.1f} height={size:.1f} />"
                )
            x = end
    width, height = len(grid[0]) * size, len(grid) * size
    told = "".join(
        f"<p><span class=key style='background:var(--{color})'></span>{_text(side['name'])}: "
        f"{_text(side['what'])} at {_short(side['line'])}</p>"
        for color, side in zip(("one", "two"), p["sides"])
    )
    cell = f"A square is {down} × {across} elements of {' × '.join(map(str, p['shape']))}."
    return (
        f"<section><h2>What both cores touch of {_text(p['label'])}</h2>"
        f"<svg width={width:.0f} height={height:.0f} viewBox='0 0 {width:.1f} {height:.1f}'>"
        f"<rect class=whole width={width:.1f} height={height:.1f} />{''.join(parts)}</svg>{told}"
        "<p><span class=key style='background:var(--both)'></span>both"
        "<span class=key style='background:var(--bad)'></span>both, and not the same bytes</p>"
        f"<p class=soft>{cell if prod(p['cell']) > 1 else ''}</p></section>"
    )
