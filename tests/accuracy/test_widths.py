"""Widths of the band: quantiles by bound, shrinking, coverage of families that took no part."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from bench.accuracy import widths
from bench.accuracy.judge import by_family
from nki_dist.timing.band import COLLECTIVES, WIDTHS
from tests.accuracy.fixtures import point

WANTED = norm.ppf((1 + widths.AIM) / 2)  # spreads that hold AIM of normal errors
SHAPES = ({"kernel": 1.0}, {"around": 1.0}, {"kernel": 0.5, "around": 0.5})


def drawn(per_family: int, spreads: dict[str, float], seed: int = 0, families: int = 6):
    """Families whose rows err normally, by the spreads of what bounds them."""
    draw = np.random.default_rng(seed)
    of = []
    for family in range(families):
        for n in range(per_family):
            bounds = SHAPES[n % len(SHAPES)]
            spread = sum(share * spreads[bound] for bound, share in bounds.items())
            of.append(point(f"f{family}-{n}", spread * draw.standard_normal(), bounds=bounds))
    return of


def kernels(per_family):
    """Rows whose time is spent on the kernel, and nothing around it."""
    draw = np.random.default_rng(0)
    return [
        point(f"f{n % 6}-{n}", 0.2 * draw.standard_normal(), bounds={"waits": 1.0})
        for n in range(6 * per_family)
    ]


def test_bounds_get_the_width_of_their_errors():
    table = widths.fitted(drawn(60, {"kernel": 0.1, "around": 0.2}))
    assert table.by_bound["kernel"] == pytest.approx(WANTED * 0.1, rel=0.25)
    assert table.by_bound["around"] == pytest.approx(WANTED * 0.2, rel=0.25)


def test_a_bound_without_rows_gets_the_width_of_all():
    table = widths.fitted(kernels(60))
    assert table.by_bound["around"] == pytest.approx(WANTED * 0.2, rel=0.2)
    assert table.assumed == pytest.approx(WANTED * 0.2, rel=0.2)


def test_few_rows_do_not_narrow_a_bound():
    of = kernels(60)
    perfect = [point(f"f0-w{n}", 0.0, bounds={"around": 1.0}) for n in range(3)]
    some = widths.fitted(of + perfect).by_bound["around"]
    assert some == pytest.approx(WANTED * 0.2, rel=0.2)
    perfect = [point(f"f{n % 6}-w{n}", 0.0, bounds={"around": 1.0}) for n in range(80)]
    assert widths.fitted(of + perfect).by_bound["around"] < 0.1


def test_what_is_assumed_adds_where_errors_say_so():
    of = drawn(30, {"kernel": 0.1, "around": 0.1})
    draw = np.random.default_rng(1)
    guessed = [
        point(f"f{n % 6}-a{n}", 0.5 * draw.standard_normal(), assumed=1.0) for n in range(80)
    ]
    assert widths.fitted(of + guessed).assumed > 2 * widths.fitted(of).assumed


def test_beta1_adds_what_its_rows_say():
    of = drawn(30, {"kernel": 0.1, "around": 0.1})
    assert widths.fitted(of).freedom == 0.0
    draw = np.random.default_rng(1)
    free = [point(f"f{n % 6}-b{n}", 0.3 * draw.standard_normal(), free=1.0) for n in range(80)]
    table = widths.fitted(of + free)
    assert table.freedom + table.by_bound["kernel"] == pytest.approx(WANTED * 0.3, rel=0.25)
    assert table.by_bound["kernel"] == pytest.approx(WANTED * 0.1, rel=0.25)


def test_no_row_has_a_collective_so_it_is_the_widest():
    table = widths.fitted(drawn(30, {"kernel": 0.05, "around": 0.3})).by_bound
    assert table[COLLECTIVES] == max(table.values()) and set(table) == set(WIDTHS)


def test_families_that_took_no_part_are_covered_as_often_as_wanted():
    of = drawn(30, {"kernel": 0.05, "around": 0.3})
    covered = widths.left_out(of)
    assert set(covered) == set(by_family(of))
    assert np.mean(list(covered.values())) == pytest.approx(widths.AIM, abs=0.02)


def test_a_family_unlike_the_others_widens_the_band_of_all():
    equal = drawn(18, {"kernel": 0.05, "around": 0.1}, families=10)
    off = [p for p in equal if p.row.family != "f0"]
    off += [point(f"f0-{n}", 0.8, bounds=SHAPES[n % 3]) for n in range(18)]
    assert widths.left_out(off)["f0"] == 0.0
    assert widths.fitted(off).by_bound["kernel"] > widths.fitted(equal).by_bound["kernel"]
