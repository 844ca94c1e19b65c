"""docs/coverage.md is what the instructions declare now."""

import re
import sys
from pathlib import Path

import pytest

from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.effects import CLEAN, Effects
from nki_dist.isa.spec import Cost, instruction

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import coverage_page  # noqa: E402 -- a program of docs

PAGE = ROOT / "docs" / "coverage.md"


def test_the_page_is_current():
    assert PAGE.read_text() == coverage_page.page(), f"run: python docs/coverage_page.py > {PAGE}"


@pytest.mark.parametrize("name", sorted(INSTRUCTIONS))
def test_every_instruction_has_one_row_that_says_everything(name):
    (row,) = re.findall(rf"^\| .*`{name}`.*$", coverage_page.page(), re.MULTILINE)
    cells = [c.strip() for c in row.strip("|").split("|")]
    assert len(cells) == 5
    assert all(cells)
    assert cells[3] == "exact" or re.match(r"approximate: \w", cells[3])
    assert re.fullmatch(r"(documented|assumed)( on \w+, .*)?", cells[4])


def test_costs_that_differ_by_engine_are_told_apart():
    effects = Effects(CLEAN, partial=False, bits=None, state=None)

    @instruction(engines="vector gpsimd", effects=effects)
    def made_up():
        return locals()

    made_up.cost(lambda i, arch: Cost(cycles=1, known=i.engine == "vector"))
    assert coverage_page.cost(made_up) == "documented on vector, assumed on gpsimd"
