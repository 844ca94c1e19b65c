"""What is said of a result that is off: what holds, and nothing where nothing does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nki_dist.insight.differences import facts

RNG = np.random.default_rng(5)
WANT = RNG.standard_normal((36, 36)) + 0.01


def said(got, want=WANT, rounding=1e-4):
    got = np.asarray(got, np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= rounding * (np.abs(want) + 0.1)
    return facts(got, want, ~(near | (got == want)), rounding)


ROWS = np.arange(36)[:, None] + np.zeros((1, 36), int)


@pytest.mark.parametrize(
    ("got", "text"),
    [
        (WANT * 8, "they are 8 times what is expected"),
        (WANT / 4, "they are 1/4 of what is expected"),
        (-WANT, "they are -1 times what is expected"),
        (WANT + 3.5, "they are what is expected + 3.5"),
        (WANT.T, "they are what is expected, transposed"),
        (np.zeros_like(WANT), "all of them are 0"),
        (WANT[:, ::-1], "with its columns in reverse order"),
        (np.roll(WANT, 1, 0), "rows 1 to 35 (not row 0) hold what is expected 1 rows before"),
        (np.trunc(WANT * 50), None),
        (WANT * (1 + ROWS), "each row is off by a factor of its own, from 2 to 36"),
        (WANT * (2 + ROWS.T), "each column is off by a factor of its own, from 2 to 37"),
        (WANT + ROWS + 1, "to each row a number of its own is added, from 1 to 36"),
        (RNG.standard_normal((36, 36)), None),
    ],
)  # fmt: skip
def test_what_all_have_in_common(got, text):
    found = said(got)
    if text is None:
        assert found[-1].startswith("they are off by ")
    elif text.startswith("rows 1"):
        assert any("hold what is expected" in s for s in found), found
    else:
        assert any(text in s for s in found), found


def test_rows_that_hold_what_others_should():
    got = WANT.copy()
    got[8:16] = WANT[0:8]
    found = said(got)
    assert "exactly those of rows 8 to 15, all columns differ" in found
    assert "rows 8 to 15 hold what is expected 8 rows before" in found
    got[8:16] = WANT[3]
    assert "rows 8 to 15 hold what is expected of row 3" in said(got)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (np.s_[3:5, 10:20], "exactly those of rows 3 to 4, columns 10 to 19 differ"),
        (np.s_[1:6:2, 3:33:3], "every 2nd of rows 1 to 5, every 3rd of columns 3 to 30 differ"),
        (np.s_[7, 9], "exactly those of row 7, column 9 differ"),
        (np.s_[::4, :], "exactly those of every 4th of rows 0 to 32, all columns differ"),
        (np.triu_indices(36, 2), "exactly the elements with column - row >= 2 differ"),
        (np.tril_indices(36, -1), "exactly the elements with column - row <= -1 differ"),
        (np.diag_indices(36), "exactly the elements with column - row from 0 to 0 differ"),
        (([1, 5, 9], [2, 4, 8]), "they are in every 4th of rows 1 to 9 (1 in each)"),
    ],
)
def test_where(where, text):
    got = WANT.copy()
    got[where] = 99 + RNG.standard_normal(got[where].shape)
    assert any(text in s for s in said(got)), said(got)


def test_what_isnt_finite_is_counted_apart():
    got = WANT.copy()
    got[4, 5:8], got[6] = np.nan, np.inf
    found = said(got)
    assert "3 of them are NaN: row 4, columns 5 to 7" in found
    assert "36 of them are infinite: row 6, all columns" in found


def test_rounding_to_a_type_is_told_as_such():
    types = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2)
    for dtype in types:
        got, name = WANT.astype(dtype).astype(np.float64), dtype.__name__
        assert any(f"as rounding to {name} would" in s for s in said(got, rounding=1e-5)), name
    clipped = np.clip(WANT * 600, -448, 448)
    assert any("they end at 448, float8_e4m3fn's largest" in s for s in said(clipped, WANT * 600))


def test_zeros_that_have_changed_places():
    want, got = np.maximum(WANT, 0), np.maximum(-WANT, 0)
    assert any("0 where something else is expected" in s for s in said(got, want))


def test_nothing_holds_by_and_large():
    """A factor that holds but for one element isn't said."""
    got = WANT * 8
    assert any("they are 8 times" in s for s in said(got))
    got[3, 3] = WANT[3, 3] * 9
    assert not any("they are 8 times" in s for s in said(got))


@pytest.mark.parametrize("shape", [(), (7,), (3, 4, 5)])
def test_any_shape(shape):
    want = np.asarray(RNG.standard_normal(shape)) + 5
    found = facts(want * 3, want, np.ones(shape, bool), 1e-4)
    alone = "all of them are" if shape == () else "they are 3 times what is expected"
    assert any(alone in s for s in found), found
