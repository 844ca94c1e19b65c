"""A session as one HTML file: the line of its launches, its kernels, and each kernel in short.

The page of a profile with other parts: same looks, same library, nothing fetched. What repeats is
said once, so that a page of a million launches is read like one of ten.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from os import PathLike
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nki_dist.program.uncollected import uncollected
from nki_dist.report import text
from nki_dist.report.figures import covered
from nki_dist.report.page import packed, scripts, write_parts
from nki_dist.timing.report import ADVISED
from nki_dist.timing.sequence import KernelTime, SequenceProfile
from nki_dist.topology.topology import Topology

_SCRIPTS: Final = ("data.js", "charts.js", "session.js")
_LONGEST: Final = 256  # launches that can repeat together
_ROWS: Final = 60  # of the line of launches
_EACH: Final = 30  # distinct launches that are told more of
_LINES: Final = 12  # of a kernel
_KERNELS: Final = 12  # strips of the chart
_SLICES: Final = 600
_COLORS: Final = ("tensor", "vector", "dma", "gpsimd", "scalar", "cc")


def write_sequence_page(
    path: str | PathLike[str],
    line: SequenceProfile,
    labels: Sequence[str],
    advice: Sequence[Mapping[str, Any]],
    topology: Topology,
) -> None:
    """Write a page.

    Args:
        labels: of each distinct launch, what it was launched with.
        advice: findings about the line, as dicts.
    """
    kernels = line.by_kernel()
    drawn = [k.name for k in kernels[:_KERNELS]]
    title = f"{len(line.order):,} launches on {topology.arch.instance}"
    with uncollected():
        parts = {
            "title": text.escaped(title),
            "head": _head(title, line, topology),
            "drawn": f"{len(drawn)} of {len(kernels):,} kernels.",
            "line": _line(line),
            "kernels": _kernels([*kernels, line.total()]),
            "advice": text.advice(advice),
            "each": _each(line, labels),
            "assumed": _assumed(line),
            "data": packed(json.dumps(_chart(line, drawn)).encode()),
            "script": scripts(_SCRIPTS),
        }
    write_parts(path, "session.html", parts)


def _head(title: str, line: SequenceProfile, topology: Topology) -> str:
    total, ranks = line.total(), topology.ranks
    band = f"band {text.us(line.low_us)} to {text.us(line.high_us)}, those of all launches added"
    tiles = [
        ("on the device", f"{text.us(line.device_us)}<i>µs</i>", band),
        ("kernels", f"{len(set(line.names)):,}", f"{len(line.names):,} distinct launches"),
        ("MFU", f"{total.mfu:.1%}", "of all of the time"),
        ("MBU", f"{total.mbu:.1%}", "of all of the time"),
        ("HBM", text.size(total.hbm_bytes), "read and written"),
        ("collectives", f"{total.collectives:.1%}", "of all of the time"),
    ]
    where = f"ranks of {topology.lnc} cores" if topology.lnc > 1 else "cores"
    return text.headed(title, f"{ranks:,} {where} · {line.gap.us:g} µs between launches", tiles)


def repeats(order: NDArray[np.intp], longest: int = _LONGEST) -> list[Any]:
    """What an order of numbers repeats, said once: numbers and (how often, what) in order.

    Short patterns first, so that a pattern can be made of patterns.
    """
    items, numbers = order.astype(np.int64), {}
    patterns: list[Any] = list(range(int(items.max()) + 1)) if len(items) else []
    period = 1
    while 2 * period <= len(items) and period <= longest:
        pieces, at = [], 0
        equal = np.concatenate(([False], items[period:] == items[:-period], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1]).reshape(-1, 2)
        for first, last in edges[edges[:, 1] - edges[:, 0] >= period].tolist():
            start = max(first, at)
            times = (last - start) // period + 1
            if times > 1:
                key = times, tuple(items[start : start + period].tolist())
                if key not in numbers:
                    numbers[key] = len(patterns)
                    patterns.append((times, tuple(patterns[n] for n in key[1])))
                pieces += [items[at:start], np.array([numbers[key]])]
                at = start + times * period
        period = 1 if pieces else period + 1
        items = np.concatenate([*pieces, items[at:]])
    return [patterns[n] for n in items.tolist()]


def _line(line: SequenceProfile) -> str:
    """The launches in order, what repeats said once."""
    rows: list[list[str]] = []

    def spent(item: Any) -> float:
        """With the gaps after the launches."""
        if not isinstance(item, tuple):
            return float(line.profiles[item].device_us + line.gap.us)
        times, what = item
        return float(times * sum(map(spent, what)))

    def show(items: Sequence[Any], start: float, depth: int) -> None:
        for item in items:
            if len(rows) > _ROWS:
                return
            times, what = item if isinstance(item, tuple) else (1, (item,))
            one = len(what) == 1 and not isinstance(what[0], tuple)
            each = spent(item) / times - line.gap.us
            name = text.escaped(line.names[what[0]]) if one else f"these {len(what)}:"
            shift = f"<span style='padding-left:{1.6 * depth}em'>{times:,} × {name}</span>"
            rows.append([*map(text.us, (start, each, times * each)), shift])
            if not one:
                show(what, start, depth + 1)
            start += spent(item)

    show(repeats(line.order), 0.0, 0)
    more = "<p class=note>The rest is left out.</p>" if len(rows) > _ROWS else ""
    heads = ["start µs", "each µs", "together µs", "launches"]
    return text.table(heads, rows[:_ROWS], 3) + more


def _kernels(found: Sequence[KernelTime]) -> str:
    longest = text.most([asdict(k) for k in found], "device_us")
    rows = [
        [f"{k.launches:,}", text.us(k.device_us, longest), text.us(k.device_us / (k.launches or 1)),
         *(f"{share:.1%}" for share in (k.share, k.mfu, k.mbu, k.collectives)),
         text.escaped(k.name)]
        for k in found
    ]  # fmt: skip
    heads = ["launches", "µs", "each µs", "share", "MFU", "MBU", "collectives", "kernel"]
    return text.table(heads, rows, 7)


def _each(line: SequenceProfile, labels: Sequence[str]) -> str:
    """Of distinct launches what their own page says in short, those that take most first."""
    parts = []
    spent = [count * p.device_us for count, p in zip(line.counts, line.profiles, strict=True)]
    order = sorted(range(len(spent)), key=lambda n: -spent[n])
    for n in order[:_EACH]:
        whole = line.profiles[n]
        # Dicts of what isn't shown would take seconds where there are thousands of cores.
        engines = [use for use in whole.engines if use.core < text.CORES]
        p = replace(whole, engines=engines, lines=whole.lines[:_LINES]).to_dict()
        found = [asdict(f) for f in line.findings(n, ADVISED)]
        parts.append(
            f"<details{' open' * (n == order[0])}><summary><b>{text.escaped(line.names[n])}</b> "
            f"<span>{line.counts[n]:,} × {text.us(p['device_us'])} µs · {text.escaped(labels[n])}"
            f"</span></summary><div class=two><div><h3>What bounded it</h3>{text.bounds(p)}</div>"
            f"<div><h3>Engines</h3>{text.engines(p)}</div></div>"
            f"{'<h3>Advice</h3>' * bool(found)}{text.findings(found)}"
            f"<h3>Lines</h3>{text.lines(p)}</details>"
        )
    return "".join(parts) + text.rest(len(order) - _EACH)


def _assumed(line: SequenceProfile) -> str:
    costs, figures, us = Counter[str](), dict[str, str](), 0.0
    for count, p in zip(line.counts, line.profiles, strict=True):
        us += count * p.assumed_us
        figures.update(p.assumed_parameters)
        costs.update({name: count * n for name, n in p.assumed_costs.items()})
    gap = (
        f"<p>Between launches: {line.gap.us:g} µs, {line.gap.low_us:g} to {line.gap.high_us:g} "
        f"({text.escaped(line.gap.source)}). That the host has queued each launch before the one "
        "before it ends is assumed, and copies from and to the host take no time here.</p>"
    )
    found = {"assumed_us": us, "device_us": line.device_us, "assumed_costs": costs}
    return gap + text.assumed({**found, "assumed_parameters": figures})


def _chart(line: SequenceProfile, names: Sequence[str]) -> dict[str, Any]:
    """For each kernel its share of every slice of time."""
    edges = np.linspace(0.0, line.device_us, _SLICES + 1)
    share = {}
    for name in names:
        mine = np.array([other == name for other in line.names], bool)[line.order]
        spans = np.stack([line.start_us[mine], (line.start_us + line.took_us)[mine]], axis=1)
        taken = np.diff(covered(spans, edges)) / (edges[1] or 1.0)
        share[name] = [round(x, 4) for x in taken.tolist()]
    colors = {name: _COLORS[n % len(_COLORS)] for n, name in enumerate(names)}
    middles = ((edges[:-1] + edges[1:]) / 2).tolist()
    return {"busy": {"us": middles, "share": share}, "colors": colors}
