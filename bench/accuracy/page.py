"""docs/accuracy.md, from the stored results: a function of files, so that a test can compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, isnan
from pathlib import Path
from string import Template
from typing import Any, Final

from bench.accuracy import leave_out, widths
from bench.accuracy.bars import Bar, bars
from bench.accuracy.judge import Errors, Point, by_family, cores, errors, percent, points, variants
from bench.accuracy.rows import DATA, FIRST, PUBLIC, Result, Row, all_rows, chosen, read_results
from nki_dist.timing.band import ASSUMED, FREEDOM, HELD, WIDTHS, width

RESULTS: Final = "simulated.jsonl"
LEFT_OUT: Final = "left_out.json"
PLOT: Final = "accuracy.svg"
_WORST: Final = 12
_BOUNDS_SHOWN: Final = 2
_LEAST_SHOWN: Final = 0.1  # of the time, to be named as a bound
# Flags of judged rows that can explain an error; the words follow "the measured time".
_FLAGS: Final = {
    "r": "was printed rounded",
    "u": "was derived from a printed share of the peak",
    "o": "is of one core of two",
}


@dataclass(frozen=True)
class Found:
    """What is stored, and what follows from it."""

    rows: list[Row]
    results: dict[str, Result]
    left_out: Mapping[str, Any]
    points: list[Point]

    @classmethod
    def read(cls, data: Path = DATA) -> Found:
        rows = chosen(all_rows(data))
        results = read_results(data / RESULTS)
        left_out = leave_out.read(data / LEFT_OUT)
        return cls(rows, results, left_out, points(rows, results))

    def bars(self) -> list[Bar]:
        return bars(self.rows, self.points, len(leave_out.figures()), self.left_out)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def page(found: Found) -> str:
    """The whole page; its words are in page.md."""
    return Template(Path(__file__).with_name("page.md").read_text()).substitute(
        bars=bars_table(found.bars()),
        families=families_table(found.points),
        plot=PLOT,
        variants=variants_table(found.points),
        worst=worst_table(found),
        failed=_failed(found),
        level=f"{100 * widths.LEVEL:.0f} %",
        held=HELD,
        widths=widths_table(),
        covered=covered_table(found.points),
        fitted=fitted_table(leave_out.figures()),
        left_out=left_out_table(found.left_out),
        parts=parts_table(found.left_out),
        cores=cores_table(found.points),
    )


def bars_table(of: Iterable[Bar]) -> str:
    said = {True: "yes", False: "no", None: "-"}
    head = ["figure", "asked", "found", "holds"]
    return table(head, [[b.what, b.asked, b.found, said[b.holds]] for b in of])


def families_table(of: Sequence[Point]) -> str:
    rows = [(name, errors(members)) for name, members in by_family(of).items()]
    for kind in (FIRST, PUBLIC):
        members = [p for p in of if p.row.set == kind]
        if members:
            rows.append((f"**{kind}**", errors(members)))
    head = ["family", "rows", "median", "90th percentile", "worst", "bias", "rank", "in the band"]
    return table(head, [_errors(name, e) for name, e in rows])


def _errors(name: str, e: Errors) -> list[str]:
    shown = [f"{value:.1f} %" for value in (e.median, e.p90, e.worst)]
    return [name, str(e.count), *shown, f"{e.bias:+.1f} %", _rank(e.rank), f"{e.covered:.0%}"]


def _rank(value: float) -> str:
    return "-" if isnan(value) else f"{value:.3f}"


def variants_table(of: Sequence[Point]) -> str:
    head = ["problem", "variants", "pairs in order", "best picked", "rank", "median error"]
    rows = [
        [
            v.problem,
            str(v.count),
            f"{v.ordered} of {v.pairs}",
            "yes" if v.picked else "no",
            _rank(v.rank),
            f"{v.median:.1f} %",
        ]
        for v in variants(of)
    ]
    return table(head, rows)


def worst_table(found: Found) -> str:
    worst = sorted(found.points, key=lambda p: (-abs(p.error), p.row.id))[:_WORST]
    head = ["row", "measured, us", "simulated, us", "off", "why it may be"]
    rows = []
    for p in worst:
        factor = p.us / p.row.measured_us
        times = [f"{p.row.measured_us:,.1f}", f"{p.us:,.1f}", f"{factor:.2f}x"]
        rows.append([p.row.id, *times, reasons(p, found.results[p.row.id])])
    return table(head, rows)


def reasons(p: Point, result: Result) -> str:
    """What may explain a row's error: what bounds it, what is assumed, how it was measured."""
    bounds = sorted(p.of.bounds.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{b} {s:.0%}" for b, s in bounds[:_BOUNDS_SHOWN] if s >= _LEAST_SHOWN]
    said = [f"spent on {', '.join(named)}; most on {result.line}"]
    if p.of.assumed >= _LEAST_SHOWN:
        said.append(f"{p.of.assumed:.0%} rests on what nobody publishes")
    said += [f"the measured time {_FLAGS[flag]}" for flag in sorted(p.row.flags) if flag in _FLAGS]
    return "; ".join(said)


def _failed(found: Found) -> str:
    lines = [
        f"- {row.id}: {result.error.replace('|', '/') if result else 'not run yet'}"
        for row in found.rows
        for result in [found.results.get(row.id)]
        if result is None or not result.device_us
    ]
    return "\n".join(["", "Rows that weren't simulated:", "", *lines, ""]) if lines else ""


def widths_table() -> str:
    words = {"around": "the start and the end of a kernel", "collectives": "collectives"}
    rows = [
        [b, words.get(b, "all else of its critical path"), f"{w:.3f}", _factor(w)]
        for b, w in WIDTHS.items()
    ]
    rows.append(["assumed", "added, times the share that is assumed", f"{ASSUMED:.3f}", ""])
    rows.append(["Beta 1", "added, to a kernel of Beta 1", f"{FREEDOM:.3f}", ""])
    head = ["width of", "which is", "width", "band if nothing else takes time"]
    return table(head, rows)


def _factor(w: float) -> str:
    """The two ends of a band, from the time in its middle."""
    return f"-{100 * (1 - exp(-w)):.0f} % to +{100 * (exp(w) - 1):.0f} %"


def covered_table(of: Sequence[Point]) -> str:
    unseen = widths.left_out(of)
    rows = []
    for name, members in by_family(of).items():
        typical = sorted(width(p.of) for p in members)[len(members) // 2]
        inside = [f"{errors(members).covered:.0%}", f"{unseen[name]:.0%}"]
        rows.append([name, str(len(members)), _factor(typical), *inside])
    share = sum(unseen[p.row.family] for p in of) / len(of) if of else 0.0
    total = f"{errors(of).covered:.0%}" if of else "-"
    rows.append(["**all**", str(len(of)), "", total, f"{share:.0%}"])
    head = ["family", "rows", "typical band", "inside", "inside, fitted without the family"]
    return table(head, rows)


def fitted_table(figures: Sequence[leave_out.Figure]) -> str:
    if not figures:
        return "None yet."
    rows = [[f"`{f.name}`", f"{f.value:g}", ", ".join(f.platforms), f.source] for f in figures]
    return table(["figure", "value", "platforms", "source"], rows)


def left_out_table(left_out: Mapping[str, Any]) -> str:
    """Errors of rows whose family, problem or size no figure was fitted to."""
    if not left_out:
        return "Not measured yet."
    count = str(left_out["rows"])
    rows = [
        [f"a {kind}", str(len(left_out[kind]["parts"])), count, *_percents(left_out[kind])]
        for kind in leave_out.PARTS
    ]
    rows.append(["nothing: the figures as they are", "", count, *_percents(left_out["now"])])
    return table(["left out together", "parts", "rows", "median", "90th percentile"], rows)


def _percents(of: Mapping[str, float]) -> list[str]:
    return [f"{of[name]:.1f} %" for name in ("median", "p90")]


def parts_table(left_out: Mapping[str, Any]) -> str:
    """The same for each family and range of sizes, with the figures that came out otherwise."""
    rows = []
    for kind in ("family", "size") if left_out else ():
        for name, line in left_out[kind]["parts"].items():
            moved = ", ".join(f"`{figure}` x {by:g}" for figure, by in line["moved"].items())
            errors_ = [f"{line['now']:.1f} %", f"{line['left_out']:.1f} %"]
            rows.append([name, str(line["rows"]), *errors_, moved or "none"])
    return table(["left out", "rows", "median now", "left out", "figures that moved"], rows)


def cores_table(of: Sequence[Point]) -> str:
    """What a second core gained, measured and simulated."""
    rows = []
    for pair in cores(of):
        one, two = pair
        times = [f"{us:,.1f}" for us in (one.row.measured_us, two.row.measured_us)]
        gains = [one.row.measured_us / two.row.measured_us, one.us / two.us]
        name = f"{one.row.id}, {two.row.id}"
        rows.append([name, *times, *(f"{g:.2f}" for g in gains), f"{percent(-pair.error):+.0f} %"])
    head = ["rows", "one core, us", "two, us", "gain", "simulated", "off"]
    return table(head, rows) if rows else "None."
