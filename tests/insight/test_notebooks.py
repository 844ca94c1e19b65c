"""What notebooks show of records and drift."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


class Table(HTMLParser):
    """The cells of a table by row, and whether all tags were closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.text = [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


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


def test_writes_are_a_table_whose_texts_are_escaped(record):
    writes = record.writes("a<b>")
    head, row = Table(writes._repr_html_()).rows
    assert head == ["step", "who", "line", "instruction", "tensor", "type", "values"]
    assert row[1:5] == ["rank 0 core 0", writes[0].location, "nisa.tensor_tensor", "a<b>"]


def test_an_origin_is_a_table_under_its_reason(record):
    chain = record.origin(output=0, index=(2, 3))
    table = Table(chain._repr_html_())
    assert len(table.rows) == 1 + len(chain) and chain.why in table.text
    assert [row[2] for row in table.rows[1:]] == [step.location for step in chain]


def test_records_and_single_findings_are_text(record):
    assert Table(record._repr_html_()).text == str(record)
    write = record.writes("a<b>")[0]
    assert Table(write._repr_html_()).text == str(write)


def test_long_tables_say_how_much_is_missing():
    def long(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for _ in range(45):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1.0)
        nl.store(out, tile)
        return out

    writes = nki.record(nki.jit(long))(X).writes("tile")
    table = Table(writes._repr_html_())
    shown = len(table.rows) - 1
    assert 0 < shown < len(writes)
    assert re.search(r"and (\d+) more", table.text)[1] == str(len(writes) - shown)


def test_drift_is_a_table_with_the_worst_line_first():
    drift = nki.drift(nki.jit(squared))(X)
    rows = Table(drift._repr_html_()).rows
    assert rows[0][:3] == ["added", "came in", "line"] and len(rows) == 2 < len(drift.lines)
    assert rows[1][2] == drift.lines[0].location and float(rows[1][0]) > 1e-4


def test_titles_are_escaped():
    drift = nki.drift(nki.jit(lambda x: squared(x)))(X)
    assert drift.kernel == "<lambda>" and "<lambda>" in Table(drift._repr_html_()).text
