"""What the report of check_kernel says, as data and as text."""

from __future__ import annotations

import json

import pytest

import nki_dist as nki
import nki_dist.language as nl
from nki_dist.testing import Case, CheckFailed, check_kernel
from tests.compiler.compiling import line_of
from tests.testing.checked import CASE, wrong
from tests.testing.wrong_kernels import adds_a_little, doubled, forgets_the_tail, output


def test_a_report_is_data_and_text_with_the_worst_first() -> None:
    cases = [Case({"x": (128, 3)}), Case({"x": (130, 3)}, name="tail")]
    with pytest.raises(CheckFailed) as caught:
        check_kernel(forgets_the_tail, doubled, cases)
    report = caught.value.report
    assert isinstance(caught.value, AssertionError) and str(caught.value) == str(report)
    lines = str(report).splitlines()
    assert lines[0] == "forgets_the_tail on trn2: 8 of 16 wrong"
    assert lines[3].startswith("WRONG") and "tail x=130x3" in lines[3]
    assert lines[4].startswith("ok") and lines[4].endswith("x=128x3")
    data = json.loads(report.to_json())
    assert data == json.loads(json.dumps(report.to_dict())) and data["ok"] is False
    bad = next(r for r in data["results"] if not r["ok"])
    assert bad["case"] == "tail x=130x3" and bad["data"] == "data=normal seed=0"
    (failure,) = bad["failures"]
    assert failure["code"] == "never-stored" and failure["numbers"]["wrong"] == 6
    assert f"{failure['file']}:{failure['line']}" == line_of(output, "return")
    assert [w["type"] for w in bad["warnings"]] == ["UnwrittenOutputWarning"]
    assert "UnwrittenOutputWarning: 6 of 390 elements" in str(report)
    good = data["results"][0]
    assert good["ok"] and good["time_us"] > 0 and good["hbm_bytes"] == 128 * 3 * 4
    assert good["differences"][0]["output"] == "output"


def test_where_else_a_failure_was_seen_is_named() -> None:
    cases = [Case({"x": (rows, 3)}) for rows in (200, 150, 300)]
    text = str(wrong(forgets_the_tail, doubled, cases))
    assert text.count("[never-stored]") == 1
    assert "likewise: x=150x3 lnc=1; x=300x3 lnc=1" in text


def test_the_worst_of_several_outputs_comes_first() -> None:
    @nki.jit
    def three(x):
        outs = [output(x) for _ in range(3)]
        for n, out in enumerate(outs):
            nl.store(out, nl.multiply(nl.load(x), 2.0 if n != 1 else 3.0))
        return outs

    result = wrong(three, lambda x: [2 * x] * 3, CASE).results[0]
    assert len(result.differences) == 3
    assert (
        result.worst is not None
        and result.worst.output == "output[1]"
        and result.worst.wrong == 13 * 7
    )


def test_a_failure_can_be_reproduced_from_the_report() -> None:
    report = wrong(adds_a_little, doubled, CASE)
    result = next(r for r in report.results if not r.ok)
    again = wrong(adds_a_little, doubled, result.source)
    assert [r.to_dict() for r in again.results] == [result.to_dict()]
    worst = result.worst
    assert worst is not None and worst.index == (3, 5)
    x = result.source.inputs()[1]["x"]
    assert worst.wanted == 2 * float(x[3, 5])


def test_nan_in_a_report_is_text() -> None:
    @nki.jit
    def not_a_number(x):
        out = output(x)
        nl.store(out, nl.full(x.shape, float("nan"), x.dtype))
        return out

    report = wrong(not_a_number, doubled, CASE)
    assert json.loads(report.to_json())["results"][0]["differences"][0]["got"] == "nan"


def test_warnings_are_in_the_report() -> None:
    @nki.jit
    def races(x):
        out = output(x)
        nl.store(out, nl.multiply(nl.load(x), 2.0 + 0.0 * nl.program_id(0)))
        nl.store(out[0:1], nl.full((1, x.shape[1]), float(nl.program_id(0)), x.dtype))
        return out

    report = check_kernel(
        races, doubled, CASE, lnc=2, check="races=warn", raises=False, seeds=(0,), data=("zeros",)
    )
    assert report.results[0].warnings[0]["type"] == "RaceWarning"
