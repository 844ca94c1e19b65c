"""A profile as one HTML file: text that needs no script, and data that the page's script draws.

The data is a head (JSON) followed by the columns of events, gzipped, as base64; so is the charting
library, plotly.js from the package `plotly`. Nothing is fetched: neither when the page is made nor
when it is opened. Browsers must know DecompressionStream (since 2023 all do).
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib import resources
from os import PathLike
from typing import Any, Final

import numpy as np

from nki_dist.program.uncollected import uncollected
from nki_dist.report import figures, memory, text
from nki_dist.report.columns import REASONS, Columns, columns
from nki_dist.report.source import Listing, listings
from nki_dist.timing.critical import critical_path
from nki_dist.timing.timeline import Timeline

SCRIPTS: Final = ("data.js", "moving.js", "timeline.js", "memory.js", "charts.js", "main.js")
_STEPS: Final = 4000  # changes of the bytes taken that are drawn, per memory


def write_page(
    path: str | PathLike[str],
    profile: Mapping[str, Any],
    timeline: Timeline,
    advice: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write a page.

    Args:
        profile: `Profile.to_dict()`.
        advice: findings as dicts.
    """
    with uncollected():  # the steps of a large world are objects by the million
        drawn = columns(timeline, critical_path(timeline))
        sources = listings(profile["lines"])
        parts = {
            "title": text.escaped(f"{profile['kernel']} on {profile['platform']}"),
            "head": text.head(profile),
            "bounds": text.bounds(profile),
            "advice": text.advice(advice),
            "engines": text.engines(profile),
            "source": text.source(sources),
            "lines": text.lines(profile),
            "changes": text.changes(profile),
            "assumed": text.assumed(profile),
            "ranks": text.ranks(timeline, figures.collectives(timeline)),
            "data": packed(_data(profile, timeline, drawn, sources)),
            "script": scripts(SCRIPTS),
        }
    write_parts(path, "page.html", parts)


def write_parts(path: str | PathLike[str], name: str, parts: Mapping[str, str]) -> None:
    """Write a template with its parts, and what all pages of profiles have."""
    common = {"style": asset("style.css"), "library": packed(library())}
    with open(path, "w", encoding="utf-8") as file:
        file.write(filled(name, {**parts, **common}))


def filled(name: str, parts: Mapping[str, str]) -> str:
    """A template in its frame, with its parts; none is looked into for marks of others."""
    pieces = re.split(r"<!--(\w+)-->", asset("frame.html").replace("<!--main-->", asset(name)))
    assert set(pieces[1::2]) == set(parts), name
    pieces[1::2] = [parts[mark] for mark in pieces[1::2]]
    return "".join(pieces)


def scripts(names: Sequence[str]) -> str:
    """Assets that are a page's script."""
    return "\n".join(map(asset, names))


def asset(name: str) -> str:
    return resources.files("nki_dist.report").joinpath("assets", name).read_text("utf-8")


def library() -> bytes:
    """The charting library's script, as its Python package ships it, after a word to Chromium.

    Reading it takes about half of the time in which a page opens. Most of its functions are called
    as it loads; who is told so reads them once, not twice (pages open in 0.9 of the time).
    """
    from plotly.offline import get_plotlyjs  # slow to import, and only pages need it

    return b"//# allFunctionsCalledOnLoad\n" + str(get_plotlyjs()).encode()


def packed(content: bytes) -> str:
    # mtime 0: equal contents give equal bytes.
    return b64encode(gzip.compress(content, 6, mtime=0)).decode()


def bundle(head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The head's length in 8 bytes, the head, and the columns, each aligned to 8 bytes."""
    place = 0
    where = {}
    for name, array in arrays.items():
        where[name] = [place, array.dtype.name, len(array)]
        place += -(-array.nbytes // 8) * 8
    text = json.dumps({**head, "columns": where}, separators=(",", ":"), ensure_ascii=False)
    written = text.encode()
    written += b" " * (-len(written) % 8)
    pieces = [len(written).to_bytes(8, "little"), written]
    for array in arrays.values():
        raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        pieces += [raw, bytes(-len(raw) % 8)]
    return b"".join(pieces)


def events(timeline: Timeline, drawn: Columns, sources: Sequence[Listing]) -> dict[str, Any]:
    """The head of what a page's timeline draws; `made` has its columns."""
    return {
        "total_ns": timeline.total_ns,
        "cores": [f"rank {c.seat.rank} core {c.seat.core}" for c in timeline.cores],
        "rows": [[r.core, r.name, r.engine, r.first, r.last] for r in drawn.rows],
        "kinds": drawn.kinds,
        "lines": [[line, anchor(line, sources)] for line in drawn.lines],
        "reasons": REASONS,
        "messages": _messages(timeline),
    }


def _data(
    profile: Mapping[str, Any], timeline: Timeline, drawn: Columns, sources: Sequence[Listing]
) -> bytes:
    head = {
        **events(timeline, drawn, sources),
        "critical_us": profile["critical"],
        "memories": _memories(timeline),
        "busy": figures.busy(drawn, timeline),
        "roofline": figures.roofline(profile, timeline),
        "ranks": figures.ranks(timeline),
    }
    return bundle(head, drawn.arrays())


def anchor(line: str, sources: Sequence[Listing]) -> str:
    """The id of a line's row in the page's source, or ""."""
    file, _, number = line.rpartition(":")
    for n, listing in enumerate(sources):
        if listing.file == file:
            return f"s{n}-{number}"
    return ""


def _messages(timeline: Timeline, most: int = 20_000) -> list[list[Any]]:
    """Core, time sent, core, time arrived, channel; not who met in collectives."""
    found: list[list[Any]] = []
    for d in timeline.deliveries:
        core, at = d.source
        if timeline.cores[core].graph.executed[at].engine != "cc":
            found.append([core, d.sent, d.target[0], d.arrived, d.channel])
        if len(found) == most:
            break
    return found


def _memories(timeline: Timeline) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    left = memory.MOST
    for number, core in enumerate(timeline.cores):
        for o in memory.occupations(number, core, timeline.arch):
            boxes = o.boxes[:left]
            left -= len(boxes)
            every = -(-len(o.steps) // _STEPS) or 1
            found.append(
                {
                    **vars(o),
                    "left_out": len(o.boxes) - len(boxes),
                    "steps": o.steps[::every],
                    "boxes": [
                        [
                            round(b.start, 3),
                            round(b.end, 3),
                            b.low,
                            b.size,
                            b.storage.title,
                            "×".join(map(str, b.storage.shape)) + f" {b.storage.dtype}",
                        ]
                        for b in boxes
                    ],
                }
            )
    return found
