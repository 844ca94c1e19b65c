"""The page of a record without a browser: its size, what it leaves out, and what it says of it."""

import gzip
import json
import re
import warnings
from base64 import b64decode
from html import unescape

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import LaunchError
from nki_dist.insight.columns import run_lengths
from nki_dist.insight.film import INFINITE, NAN, Film, Picture
from tests.insight.lines import lines_of

LINES = lines_of(__file__)
RNG = np.random.default_rng(2)


@nki.jit
def rounds(x, count):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, total = nl.load(x), nl.ndarray(x.shape, nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for n in range(count):
        part = nl.ndarray(x.shape, nl.float32, buffer=nl.sbuf)
        # LINE scale
        nisa.tensor_scalar(dst=part, data=tile, op0=nl.multiply, operand0=0.5 + n)
        # LINE sum
        nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    nl.store(out, total)
    return out


X = RNG.standard_normal((128, 256)).astype(np.float32)


@pytest.fixture(scope="module")
def record():
    return nki.record(rounds)(X, 200)


def bundle_of(page, name):
    raw = gzip.decompress(b64decode(re.search(rf'id="{name}">([^<]*)<', page)[1]))
    length = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + length])
    columns = head["columns"].items()
    return head, {n: np.frombuffer(raw, k, c, 8 + length + p) for n, (p, k, c) in columns}


@pytest.mark.parametrize("most", [3 << 20, 8 << 20, 20 << 20])
def test_the_file_uses_the_room_that_it_may_have_and_no_more(record, most):
    size = len(record.report(max_size=most).encode())
    assert 0.8 * most < size <= most


def test_it_says_what_it_leaves_out(record):
    page = record.report(max_size=3 << 20)
    sampled, pictures, written, kept = (
        int(n.replace(",", ""))
        for n in re.search(
            r"([\d,]+) of ([\d,]+) pictures are samples.*Of ([\d,]+) elements that were written, "
            r"([\d,]+) are",
            page,
        ).groups()
    )
    assert pictures == 403 and 300 < sampled <= 403 and written == 403 * X.size
    _, columns = bundle_of(page, "pictures-packed")
    given = columns["of"] < 0
    rows, wide, down, across = (
        columns[name].astype(int) for name in ("rows", "columns", "down", "across")
    )
    size = -(-rows // down) * -(-wide // across)
    assert size[~given].sum() == kept and columns["values"].size == 4 * size.sum()
    assert (size[~given] < X.size).sum() == sampled
    assert "3.00 MiB" in page
    small = nki.record(rounds)(X[:8, :8], 3).report()
    assert "Every element of every picture is in this file" in small


def test_ranges_are_those_of_all_elements_and_first_and_last_rounds_are_whole(record):
    page = record.report(max_size=4 << 20, charts=False)
    head, steps = bundle_of(page, "packed")
    _, columns = bundle_of(page, "pictures-packed")
    step_of = np.repeat(np.arange(len(steps["line"])), np.diff(steps["first"]))
    scale = head["files"].index([LINES["scale"], head["files"][2][1]])
    low, high, shape = [], [], []
    for n, operand in enumerate(columns["of"]):
        if operand >= 0 and steps["line"][step_of[operand]] == scale:
            low.append(columns["low"][n])
            high.append(columns["high"][n])
            shape.append((columns["down"][n], columns["across"][n]))
    factors = 0.5 + np.arange(200, dtype=np.float32)
    np.testing.assert_allclose(low, factors * X.min(), rtol=1e-6)
    np.testing.assert_allclose(high, factors * X.max(), rtol=1e-6)
    kept = [1 / (a * b) for a, b in shape]
    assert min(kept[0], kept[1], kept[3], kept[15], kept[-1]) > 8 * np.median(kept)


def test_the_last_round_of_a_loop_at_run_time_is_whole():
    @nki.jit
    def looped(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)

        def body(_):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, 201, body)
        nl.store(out, tile)
        return out

    film = Film(nki.record(looped)(X).launched, 4 << 20)
    film.fit(4 << 20)
    kept = [found[0].values.size for found in film.pictures.values()][1:-1]
    assert [kept[n] for n in (0, 1, 3, 15, 63, 200)] == [X.size] * 6
    assert np.median(kept) <= X.size / 8 and film.taken <= 4 << 20
    assert film.taken == sum(p.values.nbytes for f in film.pictures.values() for p in f) + X.nbytes


def test_equal_records_give_equal_files(record):
    again = nki.record(rounds)(X, 200)
    assert record.report(max_size=4 << 20) == again.report(max_size=4 << 20)


def test_no_room_at_all_is_refused(record):
    with pytest.raises(LaunchError, match=r"max_size=1000.*at least [0-9,]+ bytes"):
        record.report(max_size=1000)


@pytest.mark.parametrize(
    ("values", "odd"),
    [([1, 2], 0), ([1, np.nan], NAN), ([-np.inf, 2], INFINITE), ([np.nan, np.inf], 3), ([], 0)],
)
def test_pictures_know_what_isnt_finite(values, odd):
    made = Picture(np.array([values], np.float32), True)
    finite = [v for v in values if np.isfinite(v)] or [0]
    assert (made.odd, made.low, made.high) == (odd, min(finite), max(finite))


def test_a_film_is_a_log(record):
    film = Film(record.launched, 1 << 20)
    log = record._log
    assert film.cores == log.cores and film.written == log.written
    assert film.taken <= 3 << 20 and len(film.pictures) == 403


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        ("abcabcabcx", [[0, 3, 3, []]]),
        ("xaaaay", [[1, 1, 4, []]]),
        ("abab", []),
        ("abbbcabbbcabbbc", [[0, 5, 3, [[1, 1, 3, []]]]]),
        ("abcd", []),
        ("", []),
    ],
)
def test_folds(lines, want):
    assert run_lengths(np.array([ord(c) for c in lines], np.int64)) == want


def test_hostile_texts_are_escaped():
    evil = "</script><b>&\"'"

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name=evil)
        nisa.dma_copy(dst=tile, src=x)  # "</script><b>&"
        nl.store(out, tile)
        return out

    kernel.__name__ = evil
    page = nki.record(nki.jit(kernel))(X[:4, :4]).report(expected=X[:4, :4] * 2, charts=False)
    without = re.sub(r"<script>.*</script>", "", page, flags=re.S)
    assert "</script><b>" not in without.replace("</script>\n", "")
    assert evil in unescape(without)


def test_an_expected_that_fits_nothing_is_refused(record):
    with pytest.raises(LaunchError, match=r"expected\[0\] has shape \(3,\)"):
        record.report(expected=np.ones(3))


def test_first_wrong_line_is_named_only_where_something_tells():
    record = nki.record(rounds)(X[:8, :12], 20)
    want = sum(0.5 + n for n in range(20)) * X[:8, :12].astype(np.float64)
    right = record.report(expected=want, charts=False)
    assert "Nothing is off" in right and "data-first-wrong" not in right
    off = record.report(expected=want * 2, charts=False)
    assert "they are 1/2 of what is expected" in off and "data-first-wrong" not in off
    assert "came through the lines below" in off


@pytest.mark.parametrize(("kind", "said"), [(nl.bfloat16, "which carry has"), (nl.float32, None)])
def test_what_hides_in_the_rounding_of_a_coarser_type_is_said(kind, said):
    @nki.jit
    def total(x):
        out = nl.ndarray((4, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        carry = nl.ndarray((4, 1), dtype=kind, buffer=nl.sbuf)
        nisa.memset(dst=carry, value=0)
        for n in range(8):
            some = nl.ndarray((4, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=some, op=nl.add, data=nl.load(x[:, nl.ds(n, 1)]), axis=1)
            nisa.tensor_tensor(dst=carry, data1=carry, data2=some, op=nl.add)
        nl.store(out, carry)
        return out

    x = np.linspace(0.1, 1, 32, dtype=np.float32).reshape(4, 8)
    page = nki.record(total)(x).report(expected=x.sum(1, keepdims=True), charts=False)
    assert "output 0: as expected" in page
    assert ("off by more than float32 rounds" in page) == (said is not None)
    assert said is None or said in page


def test_nothing_but_nan_expected():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = nki.record(rounds)(X[:3, :4], 2).report(expected=X[:3, :4] * np.nan, charts=False)
    assert "12 of them are finite where NaN is expected" in page


def test_what_elements_were_made_of():
    @nki.jit
    def shifted(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for first in (0, 32):
            tile = nl.load(x[first // 2 : first // 2 + 32])
            nl.store(out[first : first + 32], tile)
        return out

    x = RNG.permutation(1024).astype(np.float32).reshape(64, 16)
    page = unescape(nki.record(shifted)(x).report(expected=x, charts=False))
    assert "exactly those of rows 32 to 63, all columns differ" in page
    assert "rows 32 to 63 hold what is expected 16 rows before" in page
    (off, right, parts), *_ = re.findall(
        r"off</b> out(\S+ \S+) = [^<]*</th><th><b class=ok>right</b> out(\S+ \S+) = [^<]*</th>"
        r"</tr></thead><tr><td>x</td>(.*?)</tr>",
        page,
    )
    row, column = re.match(r"\[(\d+), (\d+)\]", off).groups()
    assert parts == f"<td>x[{int(row) - 16}, {column}]</td><td>x{right}</td>"
    assert f"Where out{off} = {x[int(row) - 16, int(column)]:.6g}, expected " in page


def test_notebooks_show_the_page_of_small_records(record):
    small = nki.record(rounds)(X[:8, :8], 2)
    shown = small._repr_html_()
    (inner,) = re.search(r'<iframe [^>]*srcdoc="([^"]*)"></iframe>$', shown).groups()
    assert "<canvas" in unescape(inner) and "rounds" in unescape(inner)
    assert "sandbox=" in shown and len(shown) < 3 << 20
    assert unescape(shown).startswith(f"<pre>{small}</pre>")
