"""The parts of a page that are text: numbers, tables and the kernel's source, as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import PurePath
from typing import Any, Final

from nki_dist.report.source import Listing
from nki_dist.timing.band import HELD
from nki_dist.timing.schedules import COMPILED
from nki_dist.timing.timeline import Timeline

_LINES: Final = 40  # in the table of lines
CORES: Final = 3  # whose engines are listed


def escaped(value: object) -> str:
    """Text of a page."""
    return escape(str(value))


def us(value: float, largest: float | None = None) -> str:
    """Microseconds, with as many digits as are of interest.

    Args:
        largest: of a column of numbers, which all get the same digits.
    """
    of = value if largest is None else largest
    digits = 0 if not of or of >= 10_000 else 1 if of >= 100 else 3
    return f"{value:,.{digits}f}"


def most(rows: Iterable[Mapping[str, Any]], name: str) -> float:
    """The largest number of a column."""
    return max((row[name] for row in rows), default=0.0)


def size(n: int) -> str:
    for unit, least in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= least:
            return f"{n / least:,.2f} {unit}"
    return f"{n} B"


def short(location: str) -> str:
    """`file:line` without the file's folder."""
    return PurePath(location).name


def rest(count: int, what: str = "") -> str:
    """What is said of rows that aren't shown."""
    return f"<p class=note>{count:,} more{what}</p>" if count > 0 else ""


def details(count: int, html: str) -> str:
    """What is shown when somebody asks for it, if there is any."""
    return f"<details><summary>{count:,} more</summary>{html}</details>" if count > 0 else ""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: int, kind: str = "") -> str:
    """A table; the first `numbers` columns are right-aligned.

    Args:
        rows: of HTML.
    """

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if n < numbers else ''}>{cell}</{tag}>"
            for n, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table class='{kind}'><thead><tr>{cells(heads, 'th')}</tr></thead>{body}</table>"


def head(p: Mapping[str, Any]) -> str:
    """The title and the numbers that matter most."""
    cores = "1 core" if p["cores"] == 1 else f"{p['cores']} cores"
    order = "as compiled" if p["schedule"] == COMPILED else "in program order"
    tiles = [
        ("simulated", f"{us(p['total_us'])}<i>µs</i>", f"{p['instructions']:,} instructions"),
        (
            "on the device",
            f"{us(p['device_us'])}<i>µs</i>",
            f"band {us(p['low_us'])} to {us(p['high_us'])}, {HELD}",
        ),
        ("MFU", f"{p['mfu']:.1%}", f"{p['tflops']:,.2f} TFLOPS on Tensor"),
        ("MBU", f"{p['mbu']:.1%}", "of the HBM's bandwidth"),
        (
            "HBM",
            size(p["hbm_read"] + p["hbm_written"]),
            f"{size(p['hbm_read'])} read, {size(p['hbm_written'])} written",
        ),
    ]
    return headed(p["kernel"], f"{p['platform']} · {cores} · {order}", tiles)


def headed(title: str, sub: str, tiles: Sequence[tuple[str, str, str]]) -> str:
    """A title, what it is about, and numbers.

    Args:
        tiles: name, value and what more there is to say, as HTML.
    """
    shown = "".join(
        f"<div class=tile><dt>{name}</dt><dd>{value}</dd><p>{more}</p></div>"
        for name, value, more in tiles
    )
    return f"<h1>{escaped(title)}</h1><p class=sub>{escaped(sub)}</p><dl class=tiles>{shown}</dl>"


def bounds(p: Mapping[str, Any]) -> str:
    """The critical path by what it was spent on."""
    rows = []
    longest = max(p["critical"].values(), default=0.0) or 1.0
    for kind, spent in p["critical"].items():
        rows.append(
            f"<tr><th>{escaped(kind)}</th><td class=bar><b style='width:{spent / longest:.2%}'>"
            f"</b></td><td class=n>{us(spent, longest)}</td>"
            f"<td class=n>{spent / p['total_us']:.1%}</td></tr>"
        )
    return f"<table class=bars>{''.join(rows)}</table>" if rows else "<p>Nothing was executed.</p>"


def advice(found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return ""
    return (
        "<section id=advice><h2>Advice</h2><p class=note>Each finding's time comes from replaying "
        f"the launch without it; they don't add up.</p>{findings(found)}</section>"
    )


def findings(found: Sequence[Mapping[str, Any]]) -> str:
    """A list of findings."""
    items = "".join(
        f"<li><b>{us(f['saves_us'])} µs, {f['share']:.1%}</b> {escaped(f['rule'])}"
        f"<p>{escaped(f['text'])}</p>"
        f"<p class=where>{', '.join(escaped(short(line)) for line in f['lines'])} · "
        f"{escaped(f['source'])}</p></li>"
        for f in found
    )
    return f"<ol class=advice>{items}</ol>" if items else ""


def engines(p: Mapping[str, Any]) -> str:
    rows, longest = [], most(p["engines"], "busy_us")
    for use in p["engines"]:
        if use["instructions"] and use["core"] < CORES:
            share, name = use["utilisation"], escaped(use["engine"])
            rows.append(
                f"<tr><td class=n>{use['core']}</td><th><i class='dot {name}'></i>{name}</th>"
                f"<td class=n>{use['instructions']:,}</td>"
                f"<td class=n>{us(use['busy_us'], longest)}</td>"
                f"<td class=bar><b class={name} style='width:{min(share, 1):.2%}'></b></td>"
                f"<td class=n>{share:.1%}</td></tr>"
            )
    return (
        "<table class=bars><thead><tr><th class=n>core</th><th>engine</th><th class=n>instructions"
        "</th><th class=n>busy µs</th><th></th><th class=n>busy</th></tr></thead>"
        f"{''.join(rows)}</table>{rest(p['cores'] - CORES, ' cores')}"
    )


def source(found: Sequence[Listing]) -> str:
    """The kernel's source with the time of each line."""
    parts = []
    for n, listing in enumerate(found):
        longest = max(listing.critical_us.values(), default=0.0) or 1.0
        title = f"<span>{us(sum(listing.critical_us.values()))} µs critical</span>"
        parts.append(code(listing, n < 3, 5, partial(_line, listing, n, longest), title))
    return "".join(parts)


def code(
    listing: Listing, opened: bool, columns: int, row: Callable[[int, str], str], title: str = ""
) -> str:
    """A function's source.

    Args:
        row: makes HTML of a line's number, and of its text as HTML.
    """
    unknown = [(number, [None]) for number in sorted(listing.total_us)]
    parts = [
        "".join(
            row(number, "<i>source not found</i>" if line is None else escaped(line))
            for number, line in enumerate(lines, first)
        )
        for first, lines in listing.parts or unknown
    ]
    gap = f"<tr class=gap><td colspan={columns}>⋯</td></tr>" if listing.parts else ""
    return (
        f"<details{' open' if opened else ''}><summary><b>{escaped(listing.name)}</b> {title}"
        f"</summary><div class=code><table>{gap.join(parts)}</table></div></details>"
    )


def _line(listing: Listing, n: int, longest: float, number: int, line: str) -> str:
    spent, total = listing.critical_us.get(number), listing.total_us.get(number)
    used = "" if total is None else f" id=s{n}-{number} class=used tabindex=0"
    cells = "<td class=n></td><td class=bar></td><td class=n></td>"
    if total is not None:
        share = (spent or 0.0) / longest
        width = f"<b style='width:{share:.1%}'></b>" if share > 0.002 else ""
        critical = us(spent, longest) if spent else "–"
        sums = us(total, max(listing.total_us.values()))
        cells = f"<td class=n>{critical}</td><td class=bar>{width}</td><td class=n>{sums}</td>"
    return f"<tr{used}>{cells}<td class=no>{number}</td><td class=src>{line}</td></tr>"


def lines(p: Mapping[str, Any]) -> str:
    """The lines that cost most."""
    names = ("critical_us", "total_us", "longest_us")
    rows = [
        [
            *(us(x[name], most(p["lines"], name)) for name in names),
            f"{x['count']:,}",
            f"<i class='dot {escaped(x['engine'])}'></i>{escaped(x['opcode'])}",
            escaped(x["engine"]),
            escaped(short(x["location"])),
        ]
        for x in p["lines"][:_LINES]
    ]
    heads = ["critical µs", "total µs", "longest µs", "count", "instruction", "engine", "line"]
    return table(heads, rows, 4) + rest(len(p["lines"]) - len(rows), " lines")


def changes(p: Mapping[str, Any]) -> str:
    if not p["changes"]:
        return ""
    rows = [
        [f"{c['count']:,}", size(c["bytes"]) if c["bytes"] else "", escaped(c["what"]),
         escaped(short(c["location"]))]
        for c in p["changes"][:_LINES]
    ]  # fmt: skip
    html = table(["count", "bytes", "what", "line"], rows, 2)
    return f"<section><h2>What the compiler is taken to change</h2>{html}</section>"


def assumed(p: Mapping[str, Any]) -> str:
    """What rests on figures and costs that nobody publishes."""
    share = p["assumed_us"] / p["device_us"] if p["device_us"] else 0.0
    parts = [
        f"<p>{us(p['assumed_us'])} µs of the time on the device ({share:.1%}) rest on figures or "
        "costs that nobody publishes.</p>"
    ]
    if p["assumed_costs"]:
        rows = [[f"{n:,}", escaped(name)] for name, n in p["assumed_costs"].items()]
        parts.append(table(["count", "instruction without a documented cost"], rows, 1))
    if p["assumed_parameters"]:
        rows = [[escaped(name), escaped(why)] for name, why in p["assumed_parameters"].items()]
        parts.append(table(["assumed figure", "why this value"], rows, 0))
    return "".join(parts)


def ranks(timeline: Timeline, collectives: Sequence[Mapping[str, Any]]) -> str:
    """The section of ranks or cores; empty for one core."""
    if len(timeline.cores) < 2:
        return ""
    html = ""
    if collectives:
        rows = [
            [us(c["longest_us"]), us(c["apart_us"]), f"{c['count']:,}", escaped(c["opcode"]),
             escaped(short(c["line"]))]
            for c in collectives[:_LINES]
        ]  # fmt: skip
        html = "<h3>Collectives</h3>" + table(
            ["longest µs", "ranks apart by µs", "count", "collective", "line"], rows, 3
        )
    title = "Ranks" if len({c.seat.rank for c in timeline.cores}) > 1 else "Cores"
    return f"<section><h2>{title}</h2><div id=ranks class=chart></div>{html}</section>"
