"""Each instruction has an example in the reference, which runs and gives what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.isa import INSTRUCTIONS

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

from instruction_examples import EXAMPLES, OPCODES, program  # noqa: E402
from reference import example_of  # noqa: E402

from tests.programs import said  # noqa: E402


def test_every_instruction_has_an_example():
    missing = {OPCODES.get(opcode, opcode) for opcode in INSTRUCTIONS} - set(EXAMPLES)
    assert not missing, f"an Example each in a file of docs/instruction_examples: {missing}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_calls_it_and_is_right(name, tmp_path, capsys):
    text = program(name)
    assert f".{name}(" in text
    file = tmp_path / "example.py"
    file.write_text(text)  # kernels are read from their files
    exec(compile(text, str(file), "exec"), {"__name__": "example"})


def test_an_example_can_fail():
    wrong = program("tensor_tensor").replace("op=nl.multiply", "op=nl.add")
    with pytest.raises(AssertionError):
        exec(compile(wrong, "example.py", "exec"), {})


def test_examples_are_formatted(tmp_path):
    pytest.importorskip("ruff")
    for name in EXAMPLES:
        (tmp_path / f"{name}.py").write_text(program(name))
    said("-m", "ruff", "format", "--check", "--line-length=100", tmp_path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_reference_shows_it(name):
    """Where the page of its module has it, and not at a function of the same name."""
    shown = [m for m in (nisa, ncc, nl) if example_of(f"{m.__name__}.{name}")]
    assert len(shown) == 1 and hasattr(shown[0], name)
    assert program(name).splitlines()[-1] in "\n".join(example_of(f"{shown[0].__name__}.{name}"))


def test_a_function_of_the_same_name_has_no_example_of_an_instruction():
    assert hasattr(nl, "dropout") and not example_of("nki_dist.language.dropout")
