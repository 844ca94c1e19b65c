"""What notebooks show of records and drift."""

import re
from html import unescape

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


def squared(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    square = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf, name="a<b>")
    nisa.tensor_tensor(dst=square, data1=tile, data2=tile, op=nl.multiply)
    nl.store(out, square)
    return out


X = np.linspace(0.1, 3, 64, dtype=np.float32).reshape(8, 8)


@pytest.fixture(scope="module")
def record():
    return nki.record(nki.jit(squared))(X)


def test_everything_shows_what_print_does_escaped(record):
    drift = nki.drift(nki.jit(lambda x: squared(x)))(X)
    assert drift.kernel == "<lambda>"
    writes, origin = record.writes("a<b>"), record.origin(output=0, index=(2, 3))
    for found in (record, writes, writes[0], origin, origin[0], drift):
        page = found._repr_html_()
        (text,) = re.match(r"<pre>([^<>]*)</pre>", page).groups()
        assert unescape(text) == str(found)
    assert "a&lt;b&gt;" in writes._repr_html_() and "&lt;lambda&gt;" in drift._repr_html_()


def test_an_origin_has_its_reason_and_a_line_for_each_step(record):
    chain = record.origin(output=0, index=(2, 3))
    lines = str(chain).splitlines()
    assert chain.why in lines[2]
    assert [step.location in line for step, line in zip(chain, [lines[1], *lines[3:]])] == [
        True
    ] * len(chain)


def test_long_tables_say_how_much_is_missing():
    def long(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for _ in range(45):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.0)
        nl.store(out, tile)
        return out

    writes = nki.record(nki.jit(long))(X).writes("tile")
    *shown, last = str(writes).splitlines()
    assert 0 < len(shown) < len(writes)
    assert re.fullmatch(r"\.\.\. and (\d+) more", last)[1] == str(len(writes) - len(shown))


def test_of_drift_lines_that_added_something_are_shown_the_worst_first():
    drift = nki.drift(nki.jit(squared))(X)
    _, _, worst, left = str(drift).splitlines()
    assert drift.lines[0].location in worst and float(worst.split()[0]) > 1e-4
    assert left == f"{len(drift.lines) - 1} lines added nothing"
