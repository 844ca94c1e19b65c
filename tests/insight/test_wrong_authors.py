"""Seven kernels, written before the rules were read, that are wrong as authors' kernels are.

Three guilty lines are named first. Four do the wrong thing properly, several steps before the
result; what is asked of those is that the way leads through the line.
"""

import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import nki_dist as nki
from tests.insight import wrong_finite, wrong_odd
from tests.insight.lines import lines_of

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

LINES = {**wrong_odd.LINES, **wrong_finite.LINES, **lines_of(__file__)}

# By kernel: the element that is asked for, and a word of the reason why its guilty line is first;
# None where the line can't be told.
ODD = {
    wrong_odd.temperature_softmax: ((130, 5), "made a number that isn't finite"),
    wrong_odd.attention_weights: ((11, 17), "made a number that isn't finite"),
    wrong_odd.load_balance: ((1, 3), "made a number that isn't finite"),
}
FINITE = {
    wrong_finite.causal_attention: ((3, 1), None),
    wrong_finite.rms_norm: ((140, 600), None),
    wrong_finite.scaled_double_buffered: ((300, 9), None),
    wrong_finite.three_point_mean: ((6, 0), None),
}
ALL = {**ODD, **FINITE}
RANKS = {wrong_odd.load_balance, wrong_finite.three_point_mean}


def of(kernel, what):
    module = wrong_odd if kernel in ODD else wrong_finite
    return getattr(module, f"{kernel.__name__}_{what}", None)


def recorded(kernel):
    arguments = of(kernel, "inputs")()
    if kernel not in RANKS:
        return arguments, nki.record(kernel)(*arguments)
    with nki.World(ranks=4, host="inprocess") as world:
        return arguments, world.record(nki.jit(kernel), *arguments)


@pytest.mark.parametrize("kernel", ALL, ids=lambda k: k.__name__)
def test_what_is_first(kernel):
    index, reason = ALL[kernel]
    arguments, record = recorded(kernel)
    got = (record.outputs[0] if kernel in RANKS else record.outputs)[index]
    assert np.isfinite(got) == (kernel in FINITE)
    if kernel not in RANKS:
        true = of(kernel, "reference")(*arguments)[index]
        assert np.isfinite(true) and not np.isclose(got, true, rtol=1e-2)
    origin = record.origin(0, index)
    guilty = LINES[kernel.__name__]
    if reason is not None:
        assert origin[0].location == guilty, str(origin)
        assert reason in origin.why
    else:
        assert guilty in [step.location for step in origin[1:]], str(origin)
    if kernel in FINITE:
        assert record.first_non_finite() is None


# What the page of a record says beside the reference: whether it names the line, and a fact.
SAID = {
    wrong_odd.temperature_softmax: (False, "exactly those of row 130, column 5 differ"),
    wrong_odd.attention_weights: (False, "exactly those of row 11, all columns differ"),
    wrong_finite.causal_attention: (False, "k[0:8, 0:2]"),  # of row 0: a column too many
    wrong_finite.rms_norm: (False, "they are 0.5182 times what is expected"),
    wrong_finite.scaled_double_buffered: (True, "hold what is expected 128 rows before"),
}


@pytest.mark.parametrize("kernel", SAID, ids=lambda k: k.__name__)
def test_what_the_page_says(kernel):
    """It names no line that isn't guilty, the way leads through the one that is, and facts help."""
    named, fact = SAID[kernel]
    arguments, record = recorded(kernel)
    page = record.report(expected=of(kernel, "reference")(*arguments), charts=False)
    guilty = LINES[kernel.__name__]
    assert re.findall('data-first-wrong="([^"]*)"', page) == ([guilty] if named else [])
    said = unescape(page.partition("<section id=difference>")[2].partition("<section id=")[0])
    assert fact in said
    assert f"<b>{Path(guilty).name}</b>" in said


def test_the_rank_of_an_expert_without_tokens():
    _, record = recorded(wrong_odd.load_balance)
    assert record.origin(0, (1, 3), rank=0)[0].rank == record.first_non_finite().rank == 2


def test_a_halo_from_the_wrong_rank_is_on_the_way():
    _, record = recorded(wrong_finite.three_point_mean)
    origin = record.origin(0, (6, 0), rank=0)
    shards = [record.launched.inputs[rank][0] for rank in range(4)]
    true = wrong_finite.three_point_mean_reference(shards)
    assert not np.isclose(record.outputs[0][6, 0], true[0][6, 0])
    assert np.allclose(record.outputs[1], true[1], atol=1e-6)
    assert {s.rank for s in origin.sources} == {0, 3}
