"""docs/accuracy.md is what the stored results give, and so is the table of widths."""

from __future__ import annotations

import re
from math import log
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.accuracy import page as pages
from bench.accuracy import widths
from bench.accuracy.leave_out import Figure
from bench.accuracy.plot import scatter
from bench.accuracy.rows import DATA, Result
from nki_dist.timing.band import ASSUMED, COVERED, FREEDOM, HELD, WIDTHS, Shares
from tests.accuracy.fixtures import point, result, row

DOCS = Path(__file__).parents[2] / "docs"
stored = pytest.mark.skipif(
    not (DATA / pages.RESULTS).exists(), reason="no results: python -m bench.accuracy --run"
)


@pytest.fixture(scope="module")
def found():
    return pages.Found.read()


@stored
def test_the_page_and_its_plot_are_what_is_stored(found):
    assert (DOCS / "accuracy.md").read_text() == pages.page(found), "run python -m bench.accuracy"
    assert (DOCS / pages.PLOT).read_text() == scatter(found.points)


@stored
def test_widths_are_those_of_the_stored_results(found):
    table = widths.fitted(found.points)
    why = "run python -m bench.accuracy --fit, and put what it prints into nki_dist/timing/band.py"
    assert dict(table.by_bound) == dict(WIDTHS) and (table.assumed, table.freedom) == (
        ASSUMED,
        FREEDOM,
    ), why


@stored
def test_what_is_said_of_bands_is_what_they_held(found):
    """Profiles, reports and `rank` print HELD: the last column and line of the page's table."""
    assert widths.covered(found.points) == COVERED
    lines = (DOCS / "accuracy.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    table = [row for row in rows if len(row) == 5 and re.fullmatch(r"\d+%", row[4])]
    names, counts, *_, unseen = zip(*table)
    shares = [int(share.rstrip("%")) for share in unseen]
    all_of = names.index("**all**")
    held = f"{shares[all_of]}% of {counts[all_of]} measured kernels; {min(shares)}-{max(shares)}%"
    assert f"held {held} by family" == HELD
    assert HELD + "." in lines


@stored
def test_every_judged_row_has_a_result(found):
    assert [row.id for row in found.rows if row.id not in found.results] == []


# ---- parts ---------------------------------------------------------------------------------------


def made(points, results=(), left_out=None):
    kept = {r.id: r for r in results}
    return pages.Found([p.row for p in points], kept, left_out or {}, list(points))


def test_the_worst_rows_come_first_with_what_may_explain_them():
    bounds = {"transfers": 0.7, "tensor": 0.22, "waits": 0.08}
    worst = point("kda/a/1", log(3), bounds=bounds, assumed=0.5, flags="xo")
    found = made(
        [point("mlptkg-1", log(1.5)), worst],
        [Result("kda/a/1", 300.0, line="dma_copy (dma) at k.py:7"), result("mlptkg-1", 150.0)],
    )
    first, second = pages.worst_table(found).splitlines()[2:]
    assert first == (
        "| kda/a/1 | 100.0 | 300.0 | 3.00x | spent on transfers 70%, tensor 22%; most on dma_copy "
        "(dma) at k.py:7; 50% rests on what nobody publishes; the measured time is of one core of "
        "two |"
    )
    assert second.startswith("| mlptkg-1 | 100.0 | 150.0 | 1.50x | spent on tensor 100%;")


def test_rows_that_were_refused_are_listed():
    refused = Result("mlptkg-2", error="CompileError: a | b")
    found = pages.Found(
        [row("mlptkg-1"), row("mlptkg-2"), row("mlptkg-3")],
        {"mlptkg-1": result("mlptkg-1", 100.0), "mlptkg-2": refused},
        {},
        [point("mlptkg-1")],
    )
    text = pages.page(found)
    assert "- mlptkg-2: CompileError: a / b\n- mlptkg-3: not run yet\n" in text
    assert "mlptkg-1: " not in text


def test_families_left_out_are_shown_once_measured():
    line = {"rows": 3, "now": 5.0, "left_out": 8.5, "moved": {"dma_element_ns": 1.25}}
    all_of_it = {"median": 8.5, "p90": 25.5, "parts": {"att": line}}
    left_out = {"rows": 3, "now": {"median": 5.0, "p90": 9.0}}
    left_out |= dict.fromkeys(("family", "problem", "size"), all_of_it)
    only = made([point("att-1")], [result("att-1", 100.0)], left_out)
    text = pages.page(only)
    assert "| att | 3 | 5.0 % | 8.5 % | `dma_element_ns` x 1.25 |" in text
    assert "| a family | 1 | 3 | 8.5 % | 25.5 % |" in text
    assert "| nothing: the figures as they are |  | 3 | 5.0 % | 9.0 % |" in text
    assert "| median error of families left out | <= 9 % | 8.5 % | yes |" in text
    assert "| 90th percentile of families left out | <= 25 % | 25.5 % | no |" in text
    assert "Not measured yet." in pages.page(made([point("att-1")], [result("att-1", 100.0)]))


def test_figures_are_listed_with_their_source():
    figure = Figure("dma_element_ns", 88.0, "att rows", ("trn1", "trn2"))
    table = pages.fitted_table([figure])
    assert table.endswith("| `dma_element_ns` | 88 | trn1, trn2 | att rows |")
    assert pages.fitted_table([]) == "None yet."


def test_the_plot_has_a_dot_for_each_row_and_a_legend():
    of = [point(f"{family}-{n}", 0.1 * n, us=10.0**n) for family in "abc" for n in range(1, 5)]
    tree = ElementTree.fromstring(scatter(of))
    titles = [e.text for e in tree.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 12 and titles[0] == "a-1: measured 10.0 us, simulated 11.1 us"
    words = [e.text for e in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a", "b", "c", "measured", "simulated", "1,000 us"} <= set(words)
    assert "prefers-color-scheme: dark" in scatter(of)


def test_dots_lie_where_their_times_are():
    of = [point("a-1", 0.0, us=10.0), point("a-2", log(10), us=100.0), point("a-3", us=1000.0)]
    dots = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="4"[^>]*><title>', scatter(of))
    (x1, y1), (x2, y2), (x3, y3) = [tuple(map(float, dot)) for dot in dots]
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2) and y2 == y3
    assert y1 - y3 == pytest.approx(x3 - x1, abs=0.2)  # both axes span the same


def test_bands_are_shown_as_percent_of_the_time_in_their_middle():
    table = pages.covered_table([point("a-1"), point("b-1", bounds={"transfers": 1.0})])
    assert f"| a | 1 | {pages._factor(WIDTHS['kernel'])} |" in table
    assert pages._factor(log(1.25)) == "-20 % to +25 %"
    assert Shares({"tensor": 1.0}, 0.0) == point("a-1").of
