"""The measurements of instructions cover all of them and run; nothing is timed here."""

from __future__ import annotations

import pytest

from bench.instruction_cases import WITHOUT, Case, cases
from bench.instructions import linked
from nki_dist.isa import INSTRUCTIONS

CASES = cases()


def test_every_instruction_has_a_case_or_a_reason():
    measured = {case.instruction for case in CASES}
    other = sorted((measured | set(WITHOUT)) ^ set(INSTRUCTIONS))
    assert not other, f"{other}: a Case in bench/instruction_cases.py, or a reason in its WITHOUT"
    assert not measured & set(WITHOUT)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.instruction} {c.form}".strip())
def test_the_instruction_runs_again_and_again(case: Case):
    step = linked(case)
    step()
    step()
