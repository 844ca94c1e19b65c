"""docs/accuracy.md is what the stored results give, and so is the table of widths."""

import re
from pathlib import Path

import pytest

from bench.accuracy import page as pages
from bench.accuracy import widths
from bench.accuracy.plot import scatter
from bench.accuracy.rows import DATA, Result
from nki_dist.timing.band import ASSUMED, COVERED, FREEDOM, HELD, WIDTHS
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
