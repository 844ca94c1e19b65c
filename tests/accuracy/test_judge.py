"""Errors, ranks, variants, factors of rows that two cores ran: on rows that never were."""

from __future__ import annotations

from dataclasses import replace
from math import isnan, log

import pytest

from bench.accuracy.bars import Bar, bars
from bench.accuracy.judge import cores, errors, points, rank, variants
from nki_dist.timing.band import WIDTHS
from tests.accuracy.fixtures import point, result, row


def test_half_and_double_are_equally_far_off():
    e = errors([point("a-1", log(2)), point("a-2", -log(2)), point("a-3", 0.0)])
    assert (e.count, e.median, e.worst, e.bias) == pytest.approx((3, 100.0, 100.0, 0.0))
    assert errors([point("a-1", log(0.5))]).bias == pytest.approx(-50.0)


def test_quantiles_are_of_absolute_errors():
    e = errors([point(f"a-{n}", (-1) ** n * log(1 + n / 100)) for n in range(11)])
    assert (e.median, e.p90) == pytest.approx((5.0, 9.0))


def test_ranks():
    assert rank([1, 2, 3, 4], [10, 20, 40, 30]) == pytest.approx(0.8)
    assert rank([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert isnan(rank([1, 2], [1, 2])) and isnan(rank([1, 2, 3], [5, 5, 5]))


def test_a_row_is_covered_up_to_its_own_width():
    edge = WIDTHS["kernel"]
    assert point("a-1", edge - 1e-9).covered and point("a-1", 1e-9 - edge).covered
    assert not point("a-1", edge + 1e-9).covered
    assert errors([point("a-1", 0.0), point("a-2", 9.0)]).covered == 0.5


# ---- which rows, and at what scale ---------------------------------------------------------------


def test_only_judged_rows_that_ran_count():
    rows = [
        row("mlptkg-1"),
        row("mlptkg-2", flags="d"),
        row("att-1", flags="rl"),
        row("att-2", flags="rd"),
        row("autocomp/mamba/0", flags="r"),
        row("autocomp/mamba/1", flags="b"),
        row("autocomp/mamba/2", flags="f"),
        row("mlptkg-3"),
        row("mlptkg-4"),
    ]
    results = {r.id: result(r.id, 120.0) for r in rows[:-2]}
    results["mlptkg-3"] = result("mlptkg-3", 0.0, error="refused")
    kept = [p.row.id for p in points(rows, results)]
    assert kept == ["mlptkg-1", "att-1", "autocomp/mamba/0"]


def test_one_factor_is_taken_off_kernels_that_two_cores_ran():
    rows = [
        row("kda/a/1", 100.0, "x"),
        row("kda/a/2", 100.0, "x"),
        row("kda/b/1", 100.0, "x"),
        row("kda/b/2", 100.0, "xo"),
        row("kda-seed/a/seed", 100.0, "x"),
        row("autocomp/a/0", 100.0),
    ]
    times = [180.0, 200.0, 220.0, 100.0, 300.0, 130.0]
    found = points(rows, {r.id: result(r.id, us) for r, us in zip(rows, times)})
    # The median over kda's rows is 2, of one core of two 100 / 100 / 0.5.
    assert [p.us for p in found] == pytest.approx([90.0, 100.0, 110.0, 100.0, 150.0, 130.0])


def test_without_rows_that_say_better_two_cores_are_twice_as_fast():
    seed = row("kda-seed/a/seed", 100.0, "x")
    (only,) = points([seed], {seed.id: result(seed.id, 150.0)})
    assert only.us == 75.0


# ---- variants of a problem -----------------------------------------------------------------------


def pair(measured, simulated):
    of = [
        replace(point(f"kda/p/{n}", us=m), us=s)
        for n, (m, s) in enumerate(zip(measured, simulated))
    ]
    (found,) = variants(of)
    return found


def test_pairs_that_were_measured_apart_are_ordered_or_not():
    found = pair([100.0, 104.0, 200.0], [10.0, 9.0, 20.0])
    assert (found.pairs, found.ordered, found.count) == (2, 2, 3)
    assert pair([100.0, 106.0], [10.0, 9.0]).ordered == 0
    assert pair([100.0, 106.0], [10.0, 10.0]).ordered == 0, "equal times are in no order"


def test_the_best_is_picked_if_it_is_about_the_fastest():
    assert pair([100.0, 104.0, 200.0], [10.0, 9.0, 20.0]).picked
    assert not pair([100.0, 106.0, 200.0], [10.0, 9.0, 20.0]).picked


def test_errors_of_variants_are_from_their_own_median():
    assert pair([100.0, 100.0, 100.0], [300.0, 330.0, 270.0]).median == pytest.approx(10.0)


def test_a_single_variant_is_no_choice():
    assert variants([point("kda/p/1"), point("kda/q/1"), point("mlptkg-1")]) == []


# ---- what was asked ------------------------------------------------------------------------------


def bar(found: list[Bar], what: str) -> Bar:
    (one,) = [b for b in found if b.what == what]
    return one


def test_bars_hold_up_to_their_limit():
    def first(error):
        of = [point(f"mlptkg-{n}", error, us=100.0 + n) for n in range(20)]
        return bars([], of, 12, {"family": {"median": 9.0, "p90": 25.0}})

    held, missed = first(log(1.059)), first(log(1.061))
    assert bar(held, "first set, median error") == Bar(
        "first set, median error", "<= 6 %", "5.9 %", True
    )
    assert bar(missed, "first set, median error").holds is False
    assert bar(held, "first set, rank correlation").holds
    assert bar(held, "figures fitted").holds
    assert not bar(bars([], [], 13, {}), "figures fitted").holds
    assert bar(held, "median error of families left out").holds
    assert bar(held, "90th percentile of families left out").holds
    assert bar(bars([], [], 0, {}), "median error of families left out").holds is None


def test_the_gain_by_a_second_core_is_that_of_equal_launches():
    def measured(name, us, lnc, error, **config):
        of = point(name, error, us=us)
        return replace(of, row=replace(of.row, lnc=lnc, config=config))

    of = [
        measured("mlpcte-1", 100.0, 1, 0.1, hidden=1024),
        measured("mlpcte-2", 60.0, 2, log(1.05) + 0.1, hidden=1024),
        measured("mlpcte-3", 60.0, 2, 0.5, hidden=2048),
        measured("mlptkg-1", 60.0, 2, 0.5, hidden=1024),
        point("kda/a/1"),
    ]
    (pair,) = cores(of)
    assert (pair.one.row.id, pair.two.row.id) == ("mlpcte-1", "mlpcte-2")
    assert pair.error == pytest.approx(log(1.05))
    found = bar(bars([], of, 0, {}), "gain by a second core, median error")
    assert (found.found, found.holds) == ("5.0 %", True)


def test_public_rows_that_were_refused_are_missed():
    rows = [row("autocomp/a/0"), row("autocomp/a/1"), row("autocomp/a/2", flags="b")]
    of = [point("autocomp/a/0", log(1.79)), point("autocomp/a/1", -log(1.2))]
    asked = bar(bars(rows, of, 0, {}), "public set, rows that run")
    assert (asked.found, asked.holds) == ("2 of 2", True)
    assert bar(bars(rows, of[:1], 0, {}), "public set, rows that run").holds is False
    assert bar(bars(rows, of, 0, {}), "public set, worst row").holds
    worse = [point("autocomp/a/0", -log(1.81))]
    assert bar(bars(rows, worse, 0, {}), "public set, worst row").holds is False
