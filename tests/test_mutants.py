"""`make mutants`: its areas name files that exist, its operators do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.mutants.areas import AREAS, COSTS, DECLARATIONS, WHOLE, Area, chosen_tests, sources
from bench.mutants.parts import changeable, within
from bench.mutants.reasons import REASONS

ROOT = Path(__file__).parents[1]

INSTRUCTION = """\
LIMIT = 8
OTHER = 9


@instruction(engines="vector")
def made_up(dst=write(), n: int | None = Number(LIMIT).default(3), *, flag=4):
    return locals()


@made_up.cost
def _cost(i, arch) -> Cost:
    assert i.n < 5
    return Cost(cycles=_helper(i))


def _helper(i):
    return 6
"""


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_areas_name_files_and_tests_that_exist(area: Area):
    for pattern in (*area.files, *area.among):
        assert list(ROOT.glob(pattern)), pattern
    for source in sources(area, ROOT):
        chosen = chosen_tests(area, source, ROOT)
        assert len(set(chosen)) == len(chosen) > 0
        assert all((ROOT / name).exists() for name in chosen)


def test_reasons_are_about_lines_that_are_there():
    files = {path: (ROOT / path).read_text() for path, _, _ in REASONS if path}
    texts = {path: " ".join(text.split()) for path, text in files.items()}
    assert [line for path, line, _ in REASONS if path and line not in texts[path]] == []


def test_tests_that_name_an_instruction_come_first():
    declarations = next(area for area in AREAS if area.part == DECLARATIONS)
    chosen = chosen_tests(declarations, Path("nki_dist/isa/tensor_tensor_scan.py"), ROOT)
    assert "tests/isa/test_tensor_scalar.py" not in chosen
    assert chosen[-len(declarations.tests) :] == declarations.tests
    assert len(chosen) > len(declarations.tests)
    functions = chosen_tests(declarations, Path("nki_dist/isa/collectives/rank_registers.py"), ROOT)
    assert "tests/collectives/test_constraints.py" in functions


@pytest.mark.parametrize(
    ("part", "lines"),
    [
        (DECLARATIONS, {1, 5, 6}),
        (COSTS, {10, 11, 12, 13, 16, 17}),
        (WHOLE, {*range(1, 18)} - {3, 4, 8, 9, 14, 15}),
    ],
)
def test_parts(part, lines):
    """With the constants and functions of the file that they need."""
    inside, fixed = changeable(INSTRUCTION, part)
    texts = INSTRUCTION.splitlines()
    for n, text in enumerate(texts, 1):
        places = [(n, column) for column in range(len(text))]
        assert any(within(at, inside) for at in places) == (n in lines), text
    unchanged = ["int | None", "*, ", "Cost:", "assert i.n < 5"]
    for n, text in enumerate(texts, 1):
        for words in unchanged:
            if words in text:
                assert within((n, text.index(words)), fixed), words
    assert not within((6, texts[5].index("(3)") + 1), fixed)


def test_operators_do_what_their_examples_say():
    pytest.importorskip("cosmic_ray")
    from cosmic_ray.mutating import mutate_code

    from bench.mutants.operators import OPERATORS, TakeOther, given

    for operator in (*OPERATORS, TakeOther):
        for example in operator.examples():
            before, after = example.pre_mutation_code, example.post_mutation_code
            made = operator(**example.operator_args)
            assert mutate_code(before, made, example.occurrence) == after
    declared = ["f(state=A.one, bits=None, same=x)", "f(bits=B.some,\n  state=None, name='x.y')"]
    assert given(declared) == {"state": ["A.one", "None"], "bits": ["B.some", "None"]}
