"""`python -m bench.collectives_accuracy`: simulated times of collectives against published figures.

Prints the tables of docs/collectives_time.md; a test compares them with the page. The band that
belongs to the measured times is the 10 % and the 90 % quantile of the logarithm of simulated over
measured; beside it stands the one of figures that were fitted without the row in question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log
from typing import Final

import numpy as np

from bench.collectives_figures import CHOICES, NOTHING, ROWS, STATEMENTS, UNUSABLE, Row, Values
from bench.harness import table as markdown

# ---- the band -----------------------------------------------------------------------------------

FITTED: Final = ("collective_channel_gbps", "collective_start_ns")
TIMES: Final = tuple(row for row in ROWS if row.kind == "time")


def refitted(rows: Sequence[Row]) -> Values:
    """The two figures that measured times decide, chosen anew so that these rows fit best.

    Least squares of the logarithms of ratios. A row hangs on one of the two almost alone, so each
    is looked for in turn, closer and closer around the best.
    """
    values = {"collective_channel_gbps": 37.5, "collective_start_ns": 3700.0}
    width = 3.0
    for _ in range(5):
        for name in FITTED:
            tried = [{**values, name: values[name] * width ** (k / 3)} for k in range(-3, 4)]
            values = min(tried, key=lambda some: _misfit(rows, some))
        width **= 0.4
    return values


def _misfit(rows: Sequence[Row], values: Values) -> float:
    return sum(log(row.ratio(values)) ** 2 for row in rows)


def left_out() -> list[float]:
    """Ratio of each measured time, by figures that were fitted to the others."""
    return [row.ratio(refitted([other for other in TIMES if other is not row])) for row in TIMES]


def band(ratios: Sequence[float]) -> tuple[float, float]:
    """The quantiles of the module's docstring, of ratios of simulated to measured."""
    low, high = np.quantile(np.log(ratios), [0.1, 0.9])
    return float(low), float(high)


# ---- the page -----------------------------------------------------------------------------------


def _number(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def table() -> str:
    rows = []
    for row in ROWS:
        both = (f"{_number(x)} {row.unit}" for x in (row.published, row.simulated(NOTHING)))
        rows.append((row.what, row.source, *both, f"{row.ratio():.2f}"))
    return _table(("figure", "source", "published", "simulated", "ratio"), rows)


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return "\n".join(markdown(columns, rows))


def statements() -> str:
    said = {True: "holds", False: "**does not hold**"}
    rows = ((what, source, said[holds()]) for what, source, holds in STATEMENTS)
    return _table(("claim", "source", "here"), rows)


def choices() -> str:
    rows = ((what, source, f"`{asked.algorithm()}`") for what, source, asked, _ in CHOICES)
    return _table(("all-reduce", "documented", "chosen here"), rows)


def unusable() -> str:
    return _table(("figure", "source", "why not"), UNUSABLE)


def summary() -> str:
    here, out = [row.ratio() for row in TIMES], left_out()
    rows = []
    for what, ratios in (("with all of them", here), ("each by the others", out)):
        off = [exp(abs(log(r))) - 1 for r in ratios]
        low, high = band(ratios)
        rows.append((what, f"{np.median(off):.0%}", f"{max(off):.0%}", f"{low:+.2f}, {high:+.2f}"))
    quantiles = "10 % and 90 % of log(simulated / measured)"
    return _table(("measured times", "median off", "largest", quantiles), rows)


def main() -> None:
    """Print the tables of the page."""
    print(table(), summary(), statements(), choices(), unusable(), sep="\n\n")


if __name__ == "__main__":
    main()
